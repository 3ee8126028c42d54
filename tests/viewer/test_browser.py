"""The pages in a real browser: quiet, offline, usable by keyboard, restored by links, safe from any text."""

import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from support.browser import Browser, browser, missing
from support.looked import HOSTILE, index_of, made_run
from support.synthetic_study import study

from smopd.viewer.pages.build import make_view, study_payload
from smopd.viewer.pages.packing import json_bytes, script
from smopd.viewer.pages.serve import serve_folder
from smopd.viewer.results import report_run

pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]

AXE = "axe-core@4.11.0"
LIST = "#page=conversations"
TRAINING = LIST + "&source=run%3Atraining"


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return make_view([made_run(tmp_path_factory.mktemp("pages") / "run", items=130)])


@pytest.fixture
def quiet(window: Browser):
    """What a test opens must neither complain nor ask for anything but files of the page itself."""
    window.errors(), window.requests()
    window.size(1280, 900)
    window.scheme("light")
    yield window
    assert window.errors() == []
    assert {url.split(":")[0] for url in window.requests()} <= {"file", "blob", "chrome"}


def opened(window: Browser) -> str:
    return window.run("document.querySelector('.conversation h2')?.textContent ?? ''")


def colours(window: Browser) -> list[str]:
    shown = "[...document.querySelectorAll('.tokens .k')].map(k => getComputedStyle(k).backgroundColor)"
    return window.run(shown)


def test_every_page_opens_without_a_complaint(quiet, page):
    for place, heading in (
        ("", "What improved, and why"),
        ("#page=run", "The run run"),
        (LIST, "Conversations"),
    ):
        quiet.open(page, place)
        assert quiet.run("document.querySelector('main h1').textContent") == heading
    assert quiet.run("document.querySelectorAll('#list li a').length") == 100


def test_colours_follow_the_selector_and_a_link_restores_them(quiet, page):
    quiet.open(page, TRAINING)
    quiet.until("document.querySelectorAll('.tokens .k').length == 24")
    seen = {}
    for by in quiet.run("[...document.getElementById('by').options].map(o => o.value)"):
        quiet.run(
            "(s => { s.value = arguments[0]; s.dispatchEvent(new Event('change')); })"
            "(document.getElementById('by'))",
            by,
        )
        quiet.until(f"location.hash.includes('by={by}')")
        seen[by] = tuple(quiet.run("[...document.querySelectorAll('.tokens .k')].map(k => k.className)"))
    assert len(seen) == 8
    assert len(set(seen.values())) == 8
    quiet.run("document.querySelectorAll('.tokens .k')[9].click()")
    link = quiet.run("location.hash")
    assert "t=1.1" in link
    before = (opened(quiet), colours(quiet), quiet.run("document.getElementById('panel').textContent"))
    quiet.open(page, link)
    quiet.until("document.querySelectorAll('.tokens .k').length == 24")
    assert (
        opened(quiet),
        colours(quiet),
        quiet.run("document.getElementById('panel').textContent"),
    ) == before
    assert quiet.run("document.getElementById('by').value") == "weight"


def test_a_token_tells_its_values_and_what_both_models_would_say(quiet, page):
    quiet.open(page, TRAINING)
    quiet.until("document.querySelector('.tokens')")
    quiet.run("document.querySelector('.tokens').focus()")
    quiet.press("\ue014", "\ue014")  # arrow right
    told_words = quiet.run("document.getElementById('panel').textContent")
    assert "token 3 of 8" in told_words
    facts = "student entropy, teacher entropy, divergence, carries loss, over the cap, weight of the turn"
    for label in (*facts.split(", "), "student would say", "teacher would say"):
        assert label in told_words
    assert quiet.run("document.querySelectorAll('#panel .bar.sampled').length") == 2
    assert quiet.run("document.querySelectorAll('#panel .bar').length") > 2
    assert quiet.run("document.getElementById('said').textContent").startswith("token 3")
    assert "clean 1" in quiet.run("document.querySelector('.teacher').textContent")
    assert quiet.run("document.querySelectorAll('.turn-bars .bar').length") == 6


def test_the_keyboard_is_enough(quiet, page):
    quiet.open(page, LIST + "&view=sharded&source=run%3Atrained")
    quiet.until("document.querySelector('.conversation h2')?.textContent == 'item-0'")  # opened at once
    quiet.press("j")
    quiet.until("document.querySelector('.conversation h2')?.textContent == 'item-1'")
    quiet.press("k")
    quiet.until("document.querySelector('.conversation h2')?.textContent == 'item-0'")
    quiet.press("c")
    quiet.until("document.getElementById('by').value == 'surprise'")
    quiet.press("/")
    quiet.until("document.activeElement.id == 'search'")
    quiet.press("message 1 of item 7")
    quiet.until("document.getElementById('count').textContent.startsWith('22 of')")  # every number with a 7
    quiet.press("\ue00c")
    quiet.press("?")
    assert quiet.run("document.getElementById('help').open")
    quiet.press("\ue00c")
    quiet.until("!document.getElementById('help')")
    quiet.press("2")
    quiet.until("document.querySelector('main h1').textContent == 'The run run'")
    quiet.press("t")
    assert quiet.run("document.documentElement.dataset.theme") == "dark"
    quiet.press("t", "t")


def test_filters_and_before_beside_after(quiet, page):
    summary = index_of(page)["summaries"][0]["rows"][0]
    quiet.open(page)
    quiet.run("document.querySelector('.card a').click()")
    quiet.until("document.getElementById('count')")
    assert (
        quiet.run("document.getElementById('count').textContent")
        == f"{summary['gained']} of 526 conversations"
    )
    quiet.until("document.querySelector('.conversation')")
    assert quiet.run("document.querySelectorAll('.turn .pair .tokens').length") % 2 == 0
    query = "[...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    sides = ["before training: ✗ wrong, answered 3", "after training: ✓ correct, answered 3"]
    assert quiet.run(query, ".answer") == sides
    replies = [
        label.split("  ")[0].strip() for label in quiet.run(query, ".turn:first-of-type .reply > .label")
    ]
    assert [label.split(" ✗")[0].split(" ✓")[0] for label in replies] == [
        "reply, before training", "reply, after training",
    ]  # fmt: skip
    quiet.open(page, LIST + "&view=sharded&change=gained&source=run%3Abase")
    quiet.until("document.querySelector('.conversation')")
    assert quiet.run(query, ".answer") == sides  # whichever of the two was opened
    assert quiet.run("document.getElementById('count').textContent").startswith(f"{summary['gained']} of")


def test_token_by_token_leads_to_the_tokens(quiet, page):
    quiet.open(page)
    links = "[...document.querySelectorAll('.example a')]"
    assert quiet.run(f"{links}.map(a => a.textContent)") == ["The whole conversation, token by token"] * 3
    quiet.run(f"{links}[0].click()")
    quiet.until("document.querySelectorAll('.tokens .k').length")


def test_runs_stand_in_one_table(quiet, tmp_path):
    runs = [made_run(tmp_path / name, items=12, seed=seed) for seed, name in enumerate(("one", "two"))]
    pages = make_view(runs, tmp_path / "pages")
    index = index_of(pages)["sources"]
    for place in ("", "#page=run"):
        quiet.open(pages, place)
        cells = quiet.run(
            "[...document.querySelector('[aria-label=\"Accuracy before and after training\"]')"
            ".querySelectorAll('tr')].map(r => [...r.children].map(c => c.textContent))"
        )
        views = ["FULL before", "FULL after", "SHARDED before", "SHARDED after"]
        assert cells[0] == ["run", "method", "steps", *views]
        assert [row[:3] for row in cells[1:]] == [["one", "entropy", "3"], ["two", "entropy", "3"]]
        value, low, high = (f"{100 * n:.1f}" for n in index[4]["views"]["sharded"])
        assert cells[2][6] == f"{value}% [{low}, {high}]"


def test_a_study_shows_its_verdict_first(quiet, page, tmp_path):
    shutil.copytree(page.parent, tmp_path / "view")
    results = study_payload(study({"baseline": 0.4, "entropy": 0.8}, items=40), tmp_path, {})
    content = script("index", json_bytes(index_of(page) | {"studies": [results], "summaries": []}))
    (tmp_path / "view" / "data" / "index.js").write_bytes(content)
    quiet.open(tmp_path / "view" / "index.html")
    assert quiet.run("document.querySelector('.verdicts p').textContent").startswith(
        "SHARDED, gain over baseline"
    )
    assert quiet.run("document.querySelectorAll('svg.arms .seed').length") == 2 * (1 + 5 + 5)
    assert _violations(quiet) == []


def test_a_page_of_a_living_run_reloads_where_it_was_and_not_under_the_hands(quiet, tmp_path):
    living = make_view([made_run(tmp_path / "run", items=130)], live=0.5)
    quiet.open(living, LIST)
    quiet.run("window.first = true")
    quiet.run("document.getElementById('list').scrollTop = 300")
    quiet.run("document.getElementById('search').focus()")
    time.sleep(1.5)
    assert quiet.run("window.first") is True
    quiet.run("document.activeElement.blur()")
    quiet.until("!window.first && document.getElementById('list')?.scrollTop === 300")
    quiet.open(living, LIST + "&view=full")  # another place is shown from its beginning
    quiet.until("document.getElementById('list')?.scrollTop === 0")


def test_hostile_text_does_nothing(quiet, tmp_path):
    hostile = make_view([made_run(tmp_path / "run", items=2, steps=1, text=HOSTILE)])
    for place in ("", "#page=run", LIST, TRAINING):
        quiet.open(hostile, place)
        quiet.until("document.querySelector('main').textContent.length > 100")
    quiet.until("document.querySelector('.tokens')")
    quiet.open(hostile, "#page=<script>window.hit=1</script>&c=%E0%A4%A&by=__proto__&t=constructor")
    assert quiet.run("window.hit ?? null") is None
    assert quiet.run("document.querySelectorAll('main script, main img').length") == 0


@pytest.mark.parametrize("text", ["", HOSTILE], ids=["plain", "hostile"])
def test_the_report_draws_its_charts_and_nothing_else(quiet, tmp_path, text):
    run = made_run(tmp_path / "run", items=20, steps=12, **({"text": text} if text else {}))
    quiet.open(report_run(run)[0])
    assert quiet.run("document.querySelectorAll('figure[data-accuracies] svg.arms .mean').length") == 4
    charts = quiet.run("[...document.querySelectorAll('#curves figcaption')].map(c => c.textContent)")
    assert charts[:2] == ["Loss", "Correct final answers"]
    assert quiet.run("document.querySelectorAll('#curves svg.chart path').length") >= 2 * len(charts)
    assert "→" in quiet.run("document.querySelector('#curves .key').textContent")
    assert quiet.run("window.hit ?? null") is None
    assert quiet.run("document.querySelectorAll('main script, main img').length") == 0
    assert _violations(quiet) == []
    quiet.size(400, 800)
    assert quiet.run("document.documentElement.scrollWidth") <= 400


def test_a_word_of_a_megabyte_does_not_hang_it(quiet, tmp_path):
    long = make_view([made_run(tmp_path / "run", items=1, steps=1, rollouts=1, text="x" * 1_000_000)])
    began = time.monotonic()
    quiet.open(long, LIST)
    quiet.until("document.querySelector('.conversation .more')", 30)
    print(f"opened after {time.monotonic() - began:.1f} s")
    assert quiet.run("document.querySelector('main').textContent.length") < 400_000


def test_a_phone_needs_no_sideways_scrolling(quiet, page):
    quiet.size(400, 800)
    quiet.open(page, TRAINING)
    for place in ("", "#page=run", TRAINING):
        quiet.open(page, place)
        quiet.press("j")
        assert quiet.run("document.documentElement.scrollWidth") <= 400, place


def test_it_can_be_served(window, page):
    with serve_folder(page.parent, 0) as address:
        window.open(address)
        assert window.run("document.querySelector('main h1').textContent") == "What improved, and why"
        assert {url.split("/")[2] for url in window.requests() if url.startswith("http")} == {
            address.split("/")[2]
        }
    assert window.errors() == []


def _axe() -> str:
    """axe-core's script, from a cache or from npm; the test is skipped where there is neither."""
    cache = Path.home() / ".cache" / "smopd-tests" / AXE
    file = cache / "axe.min.js"
    if not file.exists():
        if not shutil.which("npm"):
            pytest.skip("axe-core needs npm")
        cache.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            ["npm", "pack", AXE, "--silent"], cwd=cache, capture_output=True, text=True, timeout=120
        )
        if got.returncode:
            pytest.skip(f"npm pack {AXE} gave nothing: {got.stderr[-200:]}")
        with tarfile.open(next(cache.glob("*.tgz"))) as archive:
            content = archive.extractfile("package/axe.min.js")
            assert content is not None
            file.write_bytes(content.read())
    return file.read_text(encoding="utf-8")


def _violations(window: Browser) -> list[str]:
    """What axe-core calls serious or critical on the page as it is."""
    window.driver.execute_script(_axe())
    violations = window.driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, {resultTypes: ['violations'], preload: false}).then(r => done(r.violations.map("
        "v => [v.impact, v.id, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join(' | ')])));"
    )
    return [f"{name}: {where}" for impact, name, where in violations if impact in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(quiet, page, scheme):
    quiet.scheme(scheme)
    for place in ("", "#page=run", TRAINING):
        quiet.open(page, place)
        if place == TRAINING:
            quiet.until("document.querySelectorAll('.tokens .k').length")
            quiet.run("document.getElementById('by').value = 'difference'")
            quiet.press("c")
        assert _violations(quiet) == [], (scheme, place)


@pytest.mark.long
def test_two_thousand_conversations_of_a_million_tokens_paint_within_a_second(window, tmp_path):
    # 2 x 2 x 350 evaluated and 75 x 8 played conversations of about 4 replies each
    run = made_run(tmp_path / "run", items=350, steps=75, rollouts=8, length=230, vocabulary=5000)
    big = make_view([run])
    rows = index_of(big)["rows"]
    assert len(rows["id"]) == 2000
    assert sum(rows["tokens"]) > 1_000_000
    size = sum(file.stat().st_size for file in big.parent.rglob("*") if file.is_file())
    assert size < 60e6
    window.open(big)
    window.open(big)  # with a warm browser, whose own start is not the page's
    # The entry is written after the paint: a page may be ready before it is there.
    window.until("performance.getEntriesByName('first-contentful-paint').length > 0", 10)
    paint = window.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    ready = int(window.run("document.documentElement.dataset.ready"))  # what it is about is on the page
    print(f"{size / 1e6:.1f} MB, first paint {paint:.0f} ms, ready {ready} ms")
    assert paint < 1000
    assert ready < 1000
    window.open(big, LIST)
    window.until("document.querySelectorAll('.tokens .k').length > 200", 10)

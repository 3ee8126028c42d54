"""The HTML page: well-formed, self-contained, safe against hostile text, the same bytes for the same data,
true to its numbers.

It leaves out looks: those were judged by eye.
"""

import html
import json
import math
import re
import time
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.page_parser import Page
from support.shown import conversation, conversation_pair

from smopd.files import write_text
from smopd.formatting import esc, finite, html_text, p_value, percent, points
from smopd.tables import cell_text
from smopd.viewer.report import (
    Accuracy,
    ConversationPair,
    Measured,
    Missing,
    ReportData,
    ShownComparison,
    metric_columns,
    render_report,
    result_sentence,
    tabulate_metrics,
    turn_rows,
    without_advice,
)

HOSTILE = """<script>alert("1")</script> 'single' "double" & &amp; [red]markup[/red] </p></div> """
HOSTILE += "\x1b[31m\x00\ud800\r\nnext line"
EMPTY = ReportData(title="nothing")


def pair(text: str = "fine") -> ConversationPair:
    before = conversation([("u1 " + text, "b1 " + text), ("u2", "")], False, None, "no_answer")
    after = conversation([("u1 " + text, "a1 " + text), ("u2", "a2"), ("u3", text)], True, text)
    return conversation_pair(text, text, text, text, before, after)


def sample(text: str = "fine", metrics: list[dict[str, Any]] | None = None) -> ReportData:
    fixed = {"outcome": 0.5, "kept": 1.0, "seconds/rollout": 2.0}
    rows = [{"step": s, "loss": 1 / s, "loss/middle": 0.5 / s, **fixed} for s in range(1, 41)]
    return ReportData(
        title=text,
        subtitle=text,
        accuracies=[
            Accuracy("base", "SHARDED", 164, 400, 0.363, 0.459),
            Accuracy("trained", "SHARDED", 245, 400, 0.564, 0.66),
            Accuracy("base", "FULL", 300, 400, 0.705, 0.79),
            Accuracy("trained", "FULL", 304, 400, 0.716, 0.8),
        ],
        comparisons=[
            ShownComparison(text, 97, 16, 0.2025, 0.153, 0.252, 3e-15),
            ShownComparison("FULL", 9, 12, -0.0075, -0.03, 0.0149, 0.664),
        ],
        metrics=rows if metrics is None else metrics,
        conversations=[pair(text)],
        settings={
            "seed": 42,
            "objective": {"keep": 0.8, "beta": {"middle": 0.5}},
            "note": text,
            "empty": {},
            "list": [1, None],
        },
    )


def test_page_is_whole_and_self_contained() -> None:
    text = render_report(sample())
    page = Page(text)
    order = ["Accuracy", "Paired comparisons", "Training", "Conversations before and after", "Settings"]
    assert page.words("h2") == order
    inert = r"https?://(?!www\.w3\.org/2000/svg)|src=|href=|url\(|@import|javascript:"
    assert not re.search(inert, text)
    # The only script is ours, and the browser knows it by its hash.
    data, script = re.findall(r"<script[^>]*>(.*?)</script>", text, re.S)
    assert page.named("script") == [{"type": "application/json", "id": "numbers"}, {}]
    assert b64encode(sha256(script.encode()).digest()).decode() in (page.named("meta")[1]["content"] or "")
    run = json.loads(data)["run"]
    assert run["step"] == list(range(1, 41))
    assert set(run["metrics"]) == {"loss", "loss/middle", "outcome", "kept", "seconds/rollout"}
    assert page.named("meta")[0] == {"charset": "utf-8"}
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"<footer>smopd \S+</footer>", text)


def test_result_in_one_sentence() -> None:
    accuracies = sample().accuracies
    whole = "After training, SHARDED accuracy went from 41.0% to 61.3% and FULL from 75.0% to 76.0%; "
    whole += "the gap between them from 34.0 to 14.8 points."
    assert result_sentence(accuracies) == whole
    assert Page(render_report(sample())).words("p")[1] == whole
    assert result_sentence(accuracies[:2]) == "SHARDED accuracy went from 41.0% to 61.3%."
    assert result_sentence(accuracies[:1]) == "SHARDED accuracy is 41.0% before training."
    assert result_sentence([Accuracy("base", "FULL", 0, 0, 0.0, 1.0)]) == ""


def test_a_notice_stands_above_the_numbers() -> None:
    text = render_report(replace(sample(), notices=["nothing to distil <b>"]))
    assert text.index("nothing to distil &lt;b&gt;") < text.index("<section>")


def test_hostile_text_is_shown_and_does_nothing() -> None:
    text = render_report(sample(HOSTILE))
    page = Page(text)
    assert not {"red", "b1"} & {tag for tag, _ in page.tags}
    assert len(page.named("script")) == text.count("<script") == text.count("</script>") == 2
    shown = (
        HOSTILE.replace("\x1b", "\ufffd")
        .replace("\x00", "\ufffd")
        .replace("\ud800", "\ufffd")
        .replace("\r\n", "\n")
    )
    for tag in ("h1", "p", "h3", "dd", "td", "th"):
        assert any(shown in content for content in page.words(tag)), tag
    assert "white-space: pre-wrap" in text
    assert esc("\"'<>&") == "&quot;&#x27;&lt;&gt;&amp;"


def test_empty_data_leaves_sections_out() -> None:
    text = render_report(EMPTY)
    page = Page(text)
    assert page.words("h1") == ["nothing"]
    assert not page.named("section")
    for field in ("accuracies", "comparisons", "metrics", "conversations", "settings"):
        full = sample()
        Page(render_report(ReportData(**{**vars(full), field: type(getattr(full, field))()})))
    nothing = conversation_pair("", "", "", "", conversation([], False, None), conversation([], True, None))
    assert "wrong before, correct after" in render_report(ReportData(title="t", conversations=[nothing]))


def test_further_data_and_what_is_missing_have_their_sections() -> None:
    data = sample()
    further = Measured(HOSTILE, data.accuracies, data.comparisons, [], [HOSTILE])
    lacking = Missing(HOSTILE, f"smopd eval {HOSTILE}")
    whole = render_report(replace(data, more=[further], missing=[lacking]))
    headings = Page(whole).words("h2")
    assert headings.count("Accuracy") == headings.count("Paired comparisons") == 1
    assert [h for h in headings if h.startswith("Also evaluated: ")]
    assert "What is missing" in headings
    assert Page(whole).words("code")
    assert without_advice(whole) == render_report(replace(data, more=[further]))


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": 1, "loss": math.nan}],
        [{"step": 1, "loss": None}, {"step": 2}],
        [{"loss": 1.0}],
        [{"step": 5, "loss": 0.0}],
        [{"step": s, "loss": 3.0} for s in range(30)],
        [{"step": s, "loss": [1.0, None, math.nan, math.inf, "text", 10**400][s % 6]} for s in range(60)],
        [{"step": 2, "loss": 1e-300}, {"step": 1, "loss": -1e149}, {"step": 3, "loss": 1e149}],
        [{"step": s, "loss": 5e-6 + 1e-12 * s, "delta": math.nan if s < 9 else 1.0} for s in range(20)],
        [{"step": s, "loss": math.sin(s), "reply_tokens/middle": 10**7 + s} for s in range(5000)],
    ],
)
def test_curves_of_awkward_metrics(rows: list[dict[str, Any]]) -> None:
    text = render_report(ReportData(title="t", metrics=rows))
    Page(text)
    run = drawn(text)["run"]
    assert all(len(column) == len(run["step"]) <= 500 for column in run["metrics"].values())
    assert [*run["step"]] == sorted(run["step"])
    assert len(text) < 120_000


def drawn(text: str) -> dict[str, Any]:
    """The numbers that the script of a page draws."""
    numbers = json.loads(re.findall(r"<script[^>]*>(.*?)</script>", text, re.S)[0])
    assert set(numbers) == {"run", "accuracies"}
    return numbers


def test_every_metric_has_its_numbers_without_a_script() -> None:
    def cells(*rows: dict[str, Any]) -> dict[str, list[str]]:
        table = tabulate_metrics(metric_columns(rows))
        assert all(row.label in render_report(ReportData(title="t", metrics=[*rows])) for row in table.rows)
        return {row.label: [cell_text(cell) for cell in row.cells] for row in table.rows}

    assert cells({"step": 1, "loss": math.nan}) == {"loss": ["n/a", "n/a"]}  # NaN is news
    assert cells({"step": 1, "loss": None}) == {}  # None is only not measured
    # The later row of a step holds.
    assert cells({"step": 1, "loss": 9.0}, {"step": 1, "loss": 2.0, "kept": None}) == {"loss": ["2", "2"]}
    falling = [{"step": step, "loss": 101.0 - step} for step in range(1, 101)]
    assert cells(*reversed(falling)) == {"loss": ["95.5", "5.5"]}
    long = metric_columns([{"step": step, "loss": step % 2} for step in range(1, 5001)])
    assert long["step"][0] == 10
    assert long["step"][-1] == 5000
    assert set(long["metrics"]["loss"]) == {0.5}


def test_bars_are_what_the_table_says() -> None:
    bars, none = drawn(render_report(replace(sample(), more=[Measured("h", [], [], [], [])])))["accuracies"]
    assert none == []
    names = ["SHARDED base", "SHARDED trained", "FULL base", "FULL trained"]
    assert [bar["arm"] for bar in bars] == names
    assert [(bar["mean"], bar["low"], bar["high"]) for bar in bars][:2] == [
        (164 / 400, 0.363, 0.459),
        (245 / 400, 0.564, 0.66),
    ]
    assert [bar["reference"] for bar in bars] == [True, False, True, False]
    cells = Page(render_report(sample())).words("td")
    assert {"41.0% [36.3, 45.9] (164/400)", "61.3% [56.4, 66.0] (245/400)"} <= set(cells)
    nothing = [Accuracy("base", "FULL", 0, 0, 0.0, 1.0)]
    assert drawn(render_report(ReportData(title="t", accuracies=nothing)))["accuracies"] == [[]]


def test_numbers_as_words() -> None:
    shown = {
        0.0: "< 0.001",
        0.00099: "< 0.001",
        0.001: "0.001",
        0.0342: "0.034",
        0.45: "0.45",
        1.0: "1.00",
        math.nan: "n/a",
    }
    assert {p: p_value(p) for p in shown} == shown
    assert [points(d) for d in (0.2025, -0.0075, 0.0, -0.0001, math.nan)] == [
        "+20.3",
        "-0.8",
        "0.0",
        "0.0",
        "n/a",
    ]
    assert [percent(f) for f in (245 / 400, 0.0, 1.0, None)] == ["61.3%", "0.0%", "100.0%", "n/a"]
    assert [finite(v) for v in (1, 2.5, None, math.inf, "3")] == [1.0, 2.5, None, None, None]
    cells = Page(render_report(sample())).words("td")
    assert {"+20.3", "[+15.3, +25.2]", "< 0.001", "\u22120.8", "0.66"} <= set(cells)


def test_settings_as_dotted_keys() -> None:
    cells = Page(render_report(sample())).words("td")
    pairs = set(pairwise(cells))
    for pair in (
        ("seed", "42"),
        ("objective.keep", "0.8"),
        ("objective.beta.middle", "0.5"),
        ("note", "fine"),
        ("list", "[1, null]"),
    ):
        assert pair in pairs


def test_conversations_side_by_side() -> None:
    page = Page(render_report(sample()))
    assert [content.strip() for content in page.words("b")] == ["✗ wrong", "✓ correct"]
    verdicts = [w for w in page.words("div") if "expected" in w]
    assert verdicts == [
        " before training: no answer found, expected fine",
        " after training: answered fine, expected fine",
    ]
    paragraphs = page.words("p")
    assert {"b1 fine", "a1 fine", "(empty)", "(no such turn)"} <= set(paragraphs)
    assert paragraphs.count("u1 fine") == 1  # the same user message is shown once, across both columns
    other = conversation_pair(
        "i", "", "", "", conversation([("x", "1")], True, "1"), conversation([("y", "2")], True, "2")
    )
    assert next(turn_rows(other)) == ({"user, turn 1, before": "x", "user, turn 1, after": "y"}, "1", "2")


def test_same_data_same_bytes(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "report.html"
    write_text(target, render_report(sample(HOSTILE)))
    first = target.read_bytes()
    write_text(target, render_report(sample(HOSTILE)))
    assert target.read_bytes() == first == render_report(sample(HOSTILE)).encode()
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


def test_a_failed_write_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_text(target, render_report(EMPTY))
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


WORDS = {"latin": "a", "thai": "\u0e01", "arabic": "\u0628", "accents": "\u0301", "no-break": "a\u00a0"}


@pytest.mark.parametrize("letters", WORDS.values(), ids=WORDS.keys())
def test_a_word_of_any_length_can_be_broken_and_is_cut(letters: str) -> None:
    """In a browser, unbroken Thai, Arabic and accents took more than two minutes at this length."""
    word = letters * 100_000
    side = conversation([(word, word), ("short", word)], False, word)
    pair = conversation_pair(word, word, word, word, side, side)
    change = ShownComparison(word, 1, 2, 0.1, 0.1, 0.2, 0.5)
    began = time.monotonic()
    text = render_report(
        ReportData(
            title=word,
            subtitle=word,
            comparisons=[change],
            conversations=[pair] * 3,
            settings={"model": {"path": word}, word: [word]},
        )
    )
    assert time.monotonic() - began < 2
    body = html.unescape(re.sub(r"<[^>]*>", " ", text.partition("<body>")[2]))
    assert max(map(len, re.split(r"[ \n]", body))) < 120
    assert f"… ({len(word):,} characters, cut)" in body
    assert len(body) < 1_000_000
    assert len(Page(text).words("title")[0]) < 300


def test_a_text_that_is_not_too_long_is_shown_whole() -> None:
    text = "word " * 3_999 + "end"
    side = conversation([("u", text)], False, "1")
    pairs = [conversation_pair("i", "", "", "1", side, side)]
    page = Page(render_report(ReportData(title="t", conversations=pairs)))
    assert text in page.words("p")
    assert html_text("x" * 80) == "x" * 80
    assert html_text("x" * 161) == f"{'x' * 80}<wbr>{'x' * 80}<wbr>x"
    assert html_text("<" * 81) == f"{'&lt;' * 80}<wbr>&lt;"
    assert html_text("a\0b") == "a\ufffdb"

"""The HTML page: well-formed, self-contained, safe against hostile text, the same bytes for the same data,
true to its numbers.

It leaves out looks: those were judged by eye.
"""

import html
import math
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from page_parser import Page

from smopd.charts import Bar, bar_chart, line_chart, nice_ticks, smooth, tick_labels
from smopd.formatting import esc, finite, html_text, p_value, percent, points
from smopd.viewer.report import (
    Accuracy,
    Comparison,
    ConversationPair,
    Measured,
    Missing,
    ReportData,
    ShownConversation,
    render_report,
    result_sentence,
    turn_rows,
    without_advice,
    write_report,
)

HOSTILE = """<script>alert("1")</script> 'single' "double" & &amp; [red]markup[/red] </p></div> """
HOSTILE += "\x1b[31m\x00\ud800\r\nnext line"
EMPTY = ReportData(title="nothing", subtitle="")


def pair(text: str = "fine") -> ConversationPair:
    before = ShownConversation([("u1 " + text, "b1 " + text), ("u2", "")], False, None, "no_answer")
    after = ShownConversation([("u1 " + text, "a1 " + text), ("u2", "a2"), ("u3", text)], True, text)
    return ConversationPair(text, text, text, text, before, after)


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
            Comparison(text, 97, 16, 0.2025, 0.153, 0.252, 3e-15),
            Comparison("FULL", 9, 12, -0.0075, -0.03, 0.0149, 0.664),
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
    assert not re.search(r"https?://|src=|href=|<script|url\(|@import|javascript:", text)
    assert not re.search(r"<(path|text|g|rect|use|clipPath)[^>]* id=", text)  # many drawings, no id twice
    # Every colour of a chart is one of the page's, which has them light and dark.
    svgs = "".join(re.findall(r"<svg.*?</svg>", text, re.S))
    colours = {"ink", "muted", "rule", "quiet", "paper", *(f"c{i}" for i in range(6))}
    found = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svgs))
    assert found <= {"none", *(f"var(--{name})" for name in colours)}
    assert page.named("meta")[0] == {"charset": "utf-8"}
    charts = [attrs for attrs in page.named("svg") if attrs["class"] == "chart"]
    assert len(charts) == 1 + 4  # accuracy; loss, outcome, kept, seconds
    assert text.count('<svg class="chart"') == len(
        re.findall(r'<svg class="chart" role="img"[^>]*><title>[^<]+</title>', text)
    )
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
    assert not {"script", "red", "b1"} & {tag for tag, _ in page.tags}
    assert "<script" not in text
    shown = (
        HOSTILE.replace("\x1b", "\ufffd")
        .replace("\x00", "\ufffd")
        .replace("\ud800", "\ufffd")
        .replace("\r\n", "\n")
    )
    for tag in ("h1", "p", "h3", "dd", "td", "th"):
        assert any(shown in words for words in page.words(tag)), tag
    assert "white-space: pre-wrap" in text
    assert esc("\"'<>&") == "&quot;&#x27;&lt;&gt;&amp;"
    assert Page(line_chart(HOSTILE, [[(1, 1.0)]], x_label=HOSTILE)).words("title") == [shown]
    Page(bar_chart(HOSTILE, [Bar(HOSTILE, HOSTILE, 0.5, 0.4, 0.6, HOSTILE, HOSTILE)]))


def test_empty_data_leaves_sections_out() -> None:
    text = render_report(EMPTY)
    page = Page(text)
    assert page.words("h1") == ["nothing"]
    assert not page.named("section")
    assert not page.named("svg")
    for field in ("accuracies", "comparisons", "metrics", "conversations", "settings"):
        full = sample()
        Page(render_report(ReportData(**{**vars(full), field: type(getattr(full, field))()})))
    Page(bar_chart("empty", []))
    nothing = ConversationPair(
        "", "", "", "", ShownConversation([], False, None), ShownConversation([], True, None)
    )
    assert "wrong before, correct after" in render_report(ReportData("t", "", conversations=[nothing]))


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
    text = render_report(ReportData("t", "", metrics=rows))
    Page(text)
    svgs = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.S))
    assert not re.search(r'="[^"]*(nan|inf|e[+-]\d)', svgs)
    assert len(text) < 120_000


def test_names_choose_the_charts() -> None:
    def captions(*names: str) -> list[str]:
        return Page(
            render_report(ReportData("t", "", metrics=[{"step": 1, **dict.fromkeys(names, 0.5)}]))
        ).words("figcaption")

    assert captions("loss/middle", "loss_other", "weights") == ["Loss"]
    assert captions("seconds/rollout", "outcome") == ["Correct final answers", "Seconds a step, by stage"]
    assert captions("unknown") == []
    diverged = ReportData("t", "", metrics=[{"step": 1, "loss": math.nan}])
    assert "no finite values" in render_report(diverged)  # NaN is news, None is only not measured
    twice: list[dict[str, Any]] = [{"step": 1, "loss": 9.0}, {"step": 1, "loss": 2.0, "kept": None}]
    assert "loss 2<" in render_report(ReportData("t", "", metrics=twice))  # the later row of a step holds


def drawn(page: Page, style: str) -> list[list[tuple[float, float]]]:
    """The corners of every path whose style has this part."""
    paths = [attrs["d"] or "" for attrs in page.named("path") if style in (attrs["style"] or "")]
    return [[(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", d)] for d in paths]


def test_bars_are_proportional_and_labelled() -> None:
    page = Page(render_report(sample()))
    base, trained = drawn(page, "fill: var(--quiet)"), drawn(page, "fill: var(--c0)")
    bars = [[y for _, y in bar] for pair in zip(base, trained, strict=True) for bar in pair]
    heights = [max(bar) - min(bar) for bar in bars]
    assert [h / heights[0] for h in heights] == pytest.approx([1, 245 / 164, 300 / 164, 304 / 164], abs=1e-3)
    assert len({max(bar) for bar in bars}) == 1  # all stand on the same line
    texts = page.words("text")
    shown = [t for t in texts if t.endswith(".0%") or t.endswith(".3%")]
    assert shown == ["41.0%", "61.3%", "75.0%", "76.0%"]
    assert {"164/400", "245/400", "SHARDED", "FULL", "base", "trained"} <= set(texts)
    ends = [[y for _, y in whisker] for whisker in drawn(page, "stroke: var(--ink)")]
    full = heights[0] / 0.41
    reach = [(max(ys) - min(ys)) / full for ys in ends]
    assert reach == pytest.approx([0.096, 0.096, 0.085, 0.084], abs=1e-3)
    awkward = [Bar("g", "a", None, 0.0, 1.0, "n/a"), Bar("g", "b", 0.5, math.nan, 0.6, "50%")]
    nothing = Page(bar_chart("t", awkward))
    assert len(drawn(nothing, "fill: var(--c0)")) == 1
    assert not drawn(nothing, "fill: var(--quiet)")
    assert not drawn(nothing, "stroke: var(--ink)")


def test_line_keeps_gaps_open_and_dots_a_single_point() -> None:
    gap = [(float(x), None if x == 2 else 1.0 * x) for x in range(5)]
    chart = Page(line_chart("t", [gap]))
    (path,) = [attrs["d"] or "" for attrs in chart.named("path") if "--c0" in (attrs["style"] or "")]
    assert path.count("M") == 2
    single = Page(line_chart("t", [[(7, 3.0)], []]))
    ((start, end),) = drawn(single, "stroke: var(--c0)")  # no length and round ends: a dot
    assert start == end
    assert [a for a in single.named("path") if "stroke-linecap: round" in (a["style"] or "")]
    assert not drawn(single, "stroke: var(--c1)")
    assert "7" in single.words("text")
    flat = Page(line_chart("t", [[(float(x), 2.0) for x in range(20)]]))
    raw, strong = drawn(flat, "stroke: var(--c0)")
    for line in (raw, strong):
        assert len({y for _, y in line}) == 1
        assert line[0][0] < line[-1][0]
    assert [
        len(drawn(flat, f"stroke: var(--c0); stroke-{look}")) for look in ("opacity: 0.28", "width: 1.8")
    ] == [1, 1]


def test_lines_differ_by_dashes_too() -> None:
    lines = [[(1.0, i), (2.0, i)] for i in range(3)]
    styles = [a["style"] or "" for a in Page(line_chart("t", lines)).named("path")]
    dashes = [re.findall("stroke-dasharray: ([^;]+)", s) for i in range(3) for s in styles if f"--c{i}" in s]
    assert len(dashes) == 3
    assert not dashes[0]
    assert dashes[1] != dashes[2]


def test_smoothing() -> None:
    assert smooth([]) == []
    few = [(1.0, 5.0), (2.0, None), (3.0, 7.0)]
    assert [y for _, y in smooth(few)] == [5.0, None, 7.0]
    noisy = [(float(x), 1.0 + (-1) ** x) for x in range(200)]
    assert all(abs((y or 0) - 1.0) < 0.2 for _, y in smooth(noisy))
    assert smooth(noisy)[-1][0] == 199.0
    hole = [(float(x), None if 80 <= x < 120 else 1.0) for x in range(200)]
    assert sum(y is None for _, y in smooth(hole)) == 1
    assert all(y is not None for _, y in smooth([(x, None if x == 50 else y) for x, y in noisy]))


def test_ticks() -> None:
    assert nice_ticks(0, 1) == [0, 0.25, 0.5, 0.75, 1]
    assert tick_labels(nice_ticks(0, 1), percent=True) == ["0%", "25%", "50%", "75%", "100%"]
    assert tick_labels([0, 5e-6, 1e-5, 1.5e-5, 2e-5]) == ["0", "5e-6", "1e-5", "1.5e-5", "2e-5"]
    assert tick_labels([-2.5e6, 0.1 + 0.2, 1e7]) == ["-2.5e6", "0.3", "1e7"]
    assert nice_ticks(1, 3, whole=True) == [1, 2, 3]
    for low, high in [(0, 0), (5, 5), (-3, -3), (1e-12, 3e-12), (-1e149, 1e149), (99.99, 100.01), (0, 7)]:
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low <= high <= ticks[-1]
        assert len(ticks) <= 8
        assert len(set(tick_labels(ticks))) == len(ticks)
    assert tick_labels([]) == []


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
    assert [words.strip() for words in page.words("b")] == ["✗ wrong", "✓ correct"]
    verdicts = [w for w in page.words("div") if "expected" in w]
    assert verdicts == [
        " before training: no answer found, expected fine",
        " after training: answered fine, expected fine",
    ]
    said = page.words("p")
    assert {"b1 fine", "a1 fine", "(empty)", "(no such turn)"} <= set(said)
    assert said.count("u1 fine") == 1  # the same user message is shown once, across both columns
    other = ConversationPair(
        "i",
        "",
        "",
        "",
        ShownConversation([("x", "1")], True, "1"),
        ShownConversation([("y", "2")], True, "2"),
    )
    assert next(turn_rows(other)) == ({"user, turn 1, before": "x", "user, turn 1, after": "y"}, "1", "2")


def test_same_data_same_bytes(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "report.html"
    write_report(target, sample(HOSTILE))
    first = target.read_bytes()
    write_report(target, sample(HOSTILE))
    assert target.read_bytes() == first == render_report(sample(HOSTILE)).encode()
    assert [p.name for p in target.parent.iterdir()] == ["report.html"]


def test_a_failed_write_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_report(target, EMPTY)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


WORDS = {"latin": "a", "thai": "\u0e01", "arabic": "\u0628", "accents": "\u0301", "no-break": "a\u00a0"}


@pytest.mark.parametrize("letters", WORDS.values(), ids=WORDS.keys())
def test_a_word_of_any_length_can_be_broken_and_is_cut(letters: str) -> None:
    """In a browser, unbroken Thai, Arabic and accents took more than two minutes at this length."""
    word = letters * 100_000
    side = ShownConversation([(word, word), ("short", word)], False, word)
    pair = ConversationPair(word, word, word, word, side, side)
    change = Comparison(word, 1, 2, 0.1, 0.1, 0.2, 0.5)
    began = time.monotonic()
    text = render_report(
        ReportData(word, word, [], [change], [], [pair] * 3, {"model": {"path": word}, word: [word]})
    )
    assert time.monotonic() - began < 2
    body = html.unescape(re.sub(r"<[^>]*>", " ", text.partition("<body>")[2]))
    assert max(map(len, re.split(r"[ \n]", body))) < 120
    assert f"… ({len(word):,} characters, cut)" in body
    assert len(body) < 1_000_000
    assert len(Page(text).words("title")[0]) < 300


def test_a_text_that_is_not_too_long_is_shown_whole() -> None:
    text = "word " * 3_999 + "end"
    side = ShownConversation([("u", text)], False, "1")
    pairs = [ConversationPair("i", "", "", "1", side, side)]
    page = Page(render_report(ReportData("t", "", conversations=pairs)))
    assert text in page.words("p")
    assert html_text("x" * 80) == "x" * 80
    assert html_text("x" * 161) == f"{'x' * 80}<wbr>{'x' * 80}<wbr>x"
    assert html_text("<" * 81) == f"{'&lt;' * 80}<wbr>&lt;"
    assert html_text("a\0b") == "a\ufffdb"

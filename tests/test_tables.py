"""One table in four forms: each shows every cell, and whatever stands in a cell is only text."""

import io
import re

from rich.console import Console
from support.page_parser import Page

from smopd.tables import Row, Styled, Table

HOSTILE = '<script>x</script> [red]|& \\input{x}_% "q" \x1b[31m'
TABLE = Table(
    title="Accuracy",
    heads=("arm", "share, %", "verdict"),
    rows=[
        Row("first", ("-1.5", ("gain",)), "one"),
        Row("second", ((Styled("2.5", "bold"), " of 3"), "loss"), "one"),
        Row(HOSTILE, (HOSTILE, (HOSTILE,)), "two"),
    ],
    words=(2,),
)


def printed(table: Table, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_html_escapes_and_names_its_groups():
    text = str(TABLE.html())
    page = Page(text)
    assert not {"script", "b"} & {tag for tag, _ in page.tags}
    assert page.words("td")[:3] == ["\u22121.5", "gain", "2.5 of 3"]  # a true minus sign
    assert [attrs for attrs in page.named("th") if attrs["scope"] == "rowgroup"] == [
        {"scope": "rowgroup", "colspan": "3"}
    ] * 2
    assert [attrs.get("class") for attrs in page.named("td")[:2]] == [None, "words"]
    shown = HOSTILE.replace("\x1b", "\ufffd")
    assert page.words("td").count(shown) == 2
    assert shown in page.words("th")


def test_markdown_keeps_its_columns():
    lines = TABLE.markdown().splitlines()
    assert lines[:4] == ["| arm | share, % | verdict |", "| --- | ---: | --- |", "| **one** |  |  |",
                         "| first | -1.5 | gain |"]  # fmt: skip
    assert lines[4] == "| second | 2.5 of 3 | loss |"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    assert "<script" not in TABLE.markdown()


def test_latex_is_ascii_with_comments_first():
    text = TABLE.latex("where\nfrom é", "")
    assert text.startswith("% where from \\xe9\n\\resizebox")
    assert r"\begin{tabular}{lrl}" in text
    assert r"\multicolumn{3}{l}{\textbf{two}} \\" in text
    assert r"second & $2.5$ of 3 & loss \\" in text
    assert text.isascii()
    assert "\\input{" not in text


def test_a_terminal_shows_text_only():
    text = printed(TABLE)
    assert "\x1b" not in text
    assert "[red]" in text
    assert re.search(r"second +2\.5 of 3 +loss", text)
    assert text.splitlines()[0].strip() == "Accuracy"
    assert all(len(line) <= 60 for line in printed(TABLE, 60).splitlines())
    bare = Table(heads=(), rows=[Row("name", ["what it does"])])
    assert printed(bare).strip() == "name  what it does"


def test_a_part_may_show_itself():
    from smopd.pages import Markup

    text = TABLE.html(lambda part: Markup("<b>won</b>") if part == "gain" else None)
    assert Page(str(text)).words("b") == ["won"]

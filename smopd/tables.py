"""Tables as HTML, Markdown, LaTeX, and rich for a terminal; every format escapes the content.

LaTeX is plain ASCII and needs only booktabs and graphicx; other characters appear as their code points.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from smopd.formatting import visible
from smopd.pages import Markup, render

_MARKED = re.compile(r"[\\`*_#|~$]|\](?=[(\[:])|!(?=\[)")  # would begin code, a link or a column
_TAG = re.compile(r"<(?=[\w/!?])|&(?=[#\w]+;)")
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#",
    "$": r"\$", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$", "|": "$|$",
    '"': "{''}", "`": r"\textasciigrave{}", "±": r"$\pm$", "\u2212": "$-$", "–": "--", "—": "---",
    "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "Δ": r"$\Delta$", "’": "'", "‘": "`", "…": r"\dots{}",
    # At the start of a row, LaTeX would read the last three as options of the row before.
    "ß": r"\ss{}", "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip
_ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0304": r"\=", "\u0308": r"\"",
    "\u030a": r"\r", "\u030c": r"\v", "\u0327": r"\c",
}  # fmt: skip


class HasText(Protocol):
    @property
    def text(self) -> str: ...


class Styled(NamedTuple):
    """Text with a rich style, which only a terminal shows."""

    text: str
    style: str


Part = str | HasText
Cell = str | tuple[Part, ...]


class Row(NamedTuple):
    """A row of a table; adjacent rows of the same group share a heading."""

    label: str
    cells: Sequence[Cell]
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table in no particular format. The first head is that of the labels; no heads: show rows only."""

    heads: Sequence[str]
    rows: Sequence[Row]
    title: str = ""
    caption: str = ""
    words: Sequence[int] = ()  # columns that hold words, not numbers

    def grouped(self) -> Iterator[tuple[str, Row]]:
        group = ""
        for row in self.rows:
            yield row.group if row.group != group else "", row
            group = row.group

    def is_words(self, column: int) -> bool:
        return column == 0 or column in self.words

    def html(self, show: Callable[[Part], Markup | None] | None = None, css: str = "scroll") -> Markup:
        """The table without title and caption; `show` renders the parts that are not plain text."""
        return render("table.html", table=self, show=show, css=css, parts_of=parts_of, cell_text=cell_text)

    def markdown(self) -> str:
        rules = ["---" if self.is_words(i) else "---:" for i in range(len(self.heads))]
        lines = [_pipes([markdown(head) for head in self.heads]), _pipes(rules)]
        for group, row in self.grouped():
            lines += [_pipes([f"**{markdown(group)}**", *[""] * (len(self.heads) - 1)])] if group else []
            lines.append(_pipes([markdown(row.label), *(markdown(cell_text(cell)) for cell in row.cells)]))
        return "\n".join(lines)

    def latex(self, *comments: str) -> str:
        """A file for \\input: comments, then one tabular, no wider than the line."""
        plain = [" ".join(visible(comment).split()) for comment in comments if comment]
        lines = [f"% {comment.encode('ascii', 'backslashreplace').decode()}" for comment in plain]
        columns = "".join("l" if self.is_words(i) else "r" for i in range(len(self.heads)))
        lines.append(r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%")
        heads = " & ".join(map(latex, self.heads)) + r" \\"
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", heads, r"\midrule"]
        for i, (group, row) in enumerate(self.grouped()):
            if group:
                lines += [r"\addlinespace"] if i else []
                lines.append(rf"\multicolumn{{{len(self.heads)}}}{{l}}{{\textbf{{{latex(group)}}}}} \\")
            cells = ("".join(map(_latex_part, parts_of(cell))) for cell in row.cells)
            lines.append(" & ".join([latex(row.label), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}"]) + "\n"

    def __rich__(self) -> RichTable:
        look: dict[str, Any] = {"title": Text(visible(self.title)) if self.title else None}
        look |= {"box": box.SIMPLE_HEAD} if self.heads else {"box": None, "pad_edge": False}
        table = RichTable(title_justify="left", header_style="bold", show_header=bool(self.heads), **look)
        for i, head in enumerate(self.heads or [""] * (1 + len(self.rows[0].cells))):
            side: Any = "left" if self.is_words(i) or not self.heads else "right"
            table.add_column(Text(visible(head)), justify=side, no_wrap=not i and not self.heads)
        for group, row in self.grouped():
            if group:
                table.add_row(Text(visible(group), style="bold"))
            table.add_row(Text(visible(row.label)), *map(_rich_cell, row.cells))
        return table


def parts_of(cell: Cell) -> tuple[Part, ...]:
    return (cell,) if isinstance(cell, str) else cell


def cell_text(cell: Cell) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in parts_of(cell))


def markdown(text: object) -> str:
    """Escape untrusted text for one line of Markdown, also inside a table."""
    plain = " ".join(visible(str(text)).split())
    return _TAG.sub(lambda match: html.escape(match[0]), _MARKED.sub(r"\\\g<0>", plain))


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(text: object) -> str:
    """Escape untrusted text for a LaTeX table, as ASCII."""
    plain = unicodedata.normalize("NFC", " ".join(visible(str(text)).split()))
    # Keep two hyphens from becoming a dash.
    return "{}".join("".join(map(_latex_character, part)) for part in re.split("(?<=-)(?=-)", plain))


def _latex_character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "\x7e":
        return character
    pair = unicodedata.normalize("NFD", character)
    if len(pair) == 2 and pair[1] in _ACCENTS and pair[0].isascii() and pair[0].isalpha():
        return f"{_ACCENTS[pair[1]]}{{{pair[0]}}}"
    return rf"\texttt{{U+{ord(character):04X}}}"


def _latex_part(part: Part) -> str:
    if isinstance(part, str):  # a blank at either end is kept: the text stands between numbers
        inner = latex(part)
        return f"{' ' * part.startswith(' ')}{inner}{' ' * (bool(inner) and part.endswith(' '))}"
    match = re.fullmatch(r"(< )?([+-]?)([\d,.]+)(%?)", part.text)
    if not match:
        return latex(part.text)
    less, sign, digits, unit = match.groups()
    digits = digits.replace(",", "{,}")  # no blank after a comma between digits
    return f"${'<' if less else ''}{sign}{digits}${latex(unit)}"


def _rich_cell(cell: Cell) -> Text:
    styled = [part if isinstance(part, Styled) else (cell_text((part,)), "") for part in parts_of(cell)]
    return Text.assemble(*((visible(text), style) for text, style in styled), overflow="fold")

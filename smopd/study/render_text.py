"""A study report as Markdown, as LaTeX tables and as JSON.

LaTeX is plain ASCII and needs only the packages booktabs and graphicx; a character that it cannot print
stands as its code point. It leaves out what the numbers are (tables.py) and the page (render.py).
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from smopd.formatting import visible
from smopd.study.render import Document, short
from smopd.study.results import json_by_rows
from smopd.study.table_parts import Number, Table

if TYPE_CHECKING:
    from smopd.study.drawing import Figure

_MARKED = re.compile(r"[\\`*_#|~$]|\](?=[(\[:])|!(?=\[)")  # what would begin a code, a link, another column
_TAG = re.compile(r"<(?=[\w/!?])|&(?=[#\w]+;)")
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#",
    "$": r"\$", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$", "|": "$|$",
    '"': "{''}", "`": r"\textasciigrave{}", "±": r"$\pm$", "\u2212": "$-$", "–": "--", "—": "---",
    "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "Δ": r"$\Delta$", "’": "'", "‘": "`", "…": r"\dots{}",
    # After the end of a row the last three would be read as its options.
    "ß": r"\ss{}", "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip
_ACCENTS = {
    "\u0300": r"\`", "\u0301": r"\'", "\u0302": r"\^", "\u0303": r"\~", "\u0304": r"\=", "\u0308": r"\"",
    "\u030a": r"\r", "\u030c": r"\v", "\u0327": r"\c",
}  # fmt: skip


def markdown(text: object) -> str:
    """Text of unknown origin on one line of Markdown, also inside a table."""
    plain = " ".join(visible(str(text)).split())
    return _TAG.sub(lambda found: html.escape(found[0]), _MARKED.sub(r"\\\g<0>", plain))


def render_markdown(document: Document) -> str:
    """The whole report; figures are links into the folder figures/."""
    parts = [markdown_opening(document), markdown_tables(document.tables)]
    parts += ["## Figures", markdown_figures(document.figures, "figures")] if document.figures else []
    if document.sentences:
        parts += ["## Every comparison in words", _list(document.sentences)]
    heads, rows = document.provenance()
    lines = [_line(heads), _line(["---"] * len(heads))]
    lines += [_line([markdown(cell) for cell in row]) for row in rows]
    about = "One line a run; `report.json` names the runs of every number and has the hashes in full."
    return "\n\n".join(part for part in [*parts, "## Provenance", about, "\n".join(lines)] if part) + "\n"


def markdown_opening(document: Document) -> str:
    """Title, size, question and what was found."""
    results = document.results
    parts = [f"# {markdown(results.title or results.name)}", markdown(document.subtitle())]
    parts += [markdown(results.about), _list(document.summary)]
    parts += ["**No result yet for:**", _list(results.missing)] if results.missing else []
    return "\n\n".join(part for part in parts if part)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {markdown(line)}" for line in lines)


def markdown_tables(tables: Sequence[Table]) -> str:
    """Tables under the headings of their sections."""
    parts = []
    for section, some in groupby(tables, lambda table: table.section):
        parts.append(f"## {markdown(section)}")
        for table in some:
            parts += [f"### {markdown(table.title)}", markdown(table.caption), _markdown_table(table)]
    return "\n\n".join(part for part in parts if part)


def markdown_figures(figures: Sequence["Figure"], folder: str) -> str:
    """Figures as links into a folder."""
    parts = []
    for figure in figures:
        title = markdown(figure.title)
        parts += [f"### {title}", f"![{title}]({folder}/{figure.name}.svg)", markdown(figure.caption)]
    return "\n\n".join(part for part in parts if part)


def _markdown_table(table: Table) -> str:
    rules = ["---" if i == 0 or i in table.words else "---:" for i in range(len(table.heads))]
    lines, group = [_line([markdown(head) for head in table.heads]), _line(rules)], ""
    for row in table.rows:
        if row.group != group:
            group = row.group
            lines.append(_line([f"**{markdown(group)}**", *[""] * (len(table.heads) - 1)]))
        texts = ("".join(p if isinstance(p, str) else p.text for p in entry) for entry in row.entries)
        lines.append(_line([markdown(row.label), *map(markdown, texts)]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(text: object) -> str:
    """Text of unknown origin in a LaTeX table: ASCII, nothing in it a command."""
    plain = unicodedata.normalize("NFC", " ".join(visible(str(text)).split()))
    # Two hyphens, not a dash.
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


def latex_table(table: Table, document: Document) -> str:
    """A file for \\input: comments with the origin, then one tabular, no wider than the line."""
    results, numbers = document.results, table.numbers()
    wanted = {folder for number in numbers for folder in number.sources}
    sources = [cell.source for cell in document.runs if cell.source.folder in wanted]
    comments = [f"{results.name}: {table.title}", table.caption]
    comments.append("config hashes: " + " ".join(dict.fromkeys(short(s.config) for s in sources)))
    comments.append("data hash: " + " ".join(dict.fromkeys(s.data for s in sources)))
    comments.append("needs booktabs and graphicx")
    plain = [" ".join(visible(comment).split()) for comment in comments if comment]
    lines = [f"% {comment.encode('ascii', 'backslashreplace').decode()}" for comment in plain]
    columns = "".join("l" if i == 0 or i in table.words else "r" for i in range(len(table.heads)))
    lines.append(r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%")
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_line(map(latex, table.heads))]
    lines.append(r"\midrule")
    group = ""
    for i, row in enumerate(table.rows):
        if row.group != group:
            group = row.group
            lines += [r"\addlinespace"] if i else []
            lines.append(rf"\multicolumn{{{len(table.heads)}}}{{l}}{{\textbf{{{latex(group)}}}}} \\")
        entries = ("".join(map(_latex_part, entry)) for entry in row.entries)
        lines.append(_latex_line([latex(row.label), *entries]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}"]) + "\n"


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_part(part: str | Number) -> str:
    if isinstance(part, str):  # a blank at either end is kept: the text stands between numbers
        inner = latex(part)
        return f"{' ' * part.startswith(' ')}{inner}{' ' * (bool(inner) and part.endswith(' '))}"
    found = re.fullmatch(r"(< )?([+-]?)([\d,.]+)(%?)", part.text)
    if not found:
        return latex(part.text)
    less, sign, digits, unit = found.groups()
    digits = digits.replace(",", "{,}")  # no blank after a comma between digits
    return f"${'<' if less else ''}{sign}{digits}${latex(unit)}"


def render_json(document: Document) -> str:
    """Every number with its id, its value (twelve digits), its printed form and its runs; and the runs."""
    results, numbers = document.results, []
    for n in document.numbers:
        value = None if n.value is None else float(f"{n.value:.12g}")
        numbers.append({"id": n.id, "value": value, "text": n.text, "sources": list(n.sources)})
    runs = [asdict(c.source) | {"model": c.model, "arm": c.arm, "axes": c.axes} for c in document.runs]
    tree = {name: getattr(results, name) for name in ("name", "title", "reference", "views", "data")}
    rows = {"missing": results.missing, "summary": document.summary, "numbers": numbers, "sources": runs}
    return json_by_rows(tree | rows, list(rows))

"""A study report before it takes a form, and as one HTML page: no script, no outside resource.

Every number of a table is a link to the set of runs it was computed from; its tooltip tells its id, its
unrounded value and those runs. It leaves out the other forms (render_text.py).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from smopd.formatting import esc
from smopd.pages import html_page, section, style_sheet
from smopd.study.results import Cell, Results
from smopd.study.table_parts import VERDICTS, Entry, Number, Table, point_label

if TYPE_CHECKING:
    from smopd.study.drawing import Figure

_HASH = re.compile(r"\b[0-9a-f]{16,}\b")
NEAR = ",\u00a0"  # keeps what follows a comma in a head on its line
WIDE = 500  # points; a wider drawing gets the whole width of the page


@dataclass(frozen=True)
class Document:
    """A study report before it takes a form."""

    results: Results
    tables: list[Table]
    figures: list["Figure"]
    summary: list[str]  # what the study found, see tables.verdict_lines
    sentences: list[str]  # one a comparison

    @cached_property
    def numbers(self) -> list[Number]:
        """Every number of every table, once."""
        found: dict[str, Number] = {}
        for table in self.tables:
            for number in table.numbers():
                if found.setdefault(number.id, number) != number:
                    raise AssertionError(f"two numbers have the id {number.id}")
        return list(found.values())

    @cached_property
    def runs(self) -> list[Cell]:
        """Base models first, then the cells; a run's number is its place here, from 1."""
        return [*self.results.base, *self.results.cells]

    @cached_property
    def places(self) -> dict[str, int]:
        """Run folder -> the run's number."""
        return {cell.source.folder: place for place, cell in enumerate(self.runs, 1)}

    @cached_property
    def sets(self) -> dict[tuple[str, ...], int]:
        """Every set of runs that some number was computed from, numbered from 1 in order of its first use."""
        folders = dict.fromkeys(number.sources for number in self.numbers)
        return dict(zip(folders, range(1, len(folders) + 1), strict=True))

    def subtitle(self) -> str:
        """The size of the study in a line."""
        r = self.results
        axes = "".join(f", {len(values)} values of {setting}" for setting, values in r.axes.items())
        played = f", each played {r.runs} times" if r.runs > 1 else ""
        grid = f"{_count(r.models, 'model')}, {_count(r.arms, 'arm')}{axes}, {_count(r.seeds, 'seed')}"
        items = f"{_count(r.items, 'item')} of {r.data}{played}"
        judged = ", ".join(f"{task} {rule}" for task, rule in r.rules.items())
        judged = f", judged by {judged}" if judged else ""
        return f"{r.name}: {grid}; {items}{judged}; every arm against {r.reference}"

    def provenance(self, full: bool = False) -> tuple[list[str], list[list[str]]]:
        """(heads, rows): where every cell comes from; `full` keeps hashes whole."""
        heads = ["run", "cell", "folder", "seed", "config", "data", "trained by", "evaluated by", "adapter"]
        rows = []
        for place, cell in enumerate(self.runs, 1):
            s = cell.source
            name = ", ".join(part for part in (cell.model, cell.arm, point_label(cell.axes)) if part)
            code = (s.trained_by or "", s.evaluated_by, s.adapter or "")
            seed = "" if s.seed is None else str(s.seed)
            row = [str(place), name, s.folder, seed, s.config, s.data, *code]
            rows.append(row if full else [*row[:3], *map(short, row[3:])])
        return heads, rows


def short(text: str) -> str:
    """Hashes cut to twelve digits."""
    return _HASH.sub(lambda found: found[0][:12], text)


def ranges(places: Iterable[int]) -> str:
    """1, 2, 3, 5 -> "1-3, 5"."""
    parts = []
    for _, stretch in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        some = [place for _, place in stretch]
        parts.append(f"{some[0]}-{some[-1]}" if len(some) > 2 else ", ".join(map(str, some)))
    return ", ".join(parts)


def _count(things: list[Any], name: str) -> str:
    return f"{len(things):,} {name}{'' if len(things) == 1 else 's'}"


def render_html(document: Document) -> str:
    """The page as one string."""
    results = document.results
    head = f'<h1>{esc(results.title or results.name)}</h1><p class="subtitle">{esc(document.subtitle())}</p>'
    head += f'<p class="lede">{esc(results.about)}</p>' if results.about else ""
    head += f'<ul class="findings">{_items(document.summary)}</ul>'
    if results.missing:
        names = "".join(f"<li>{esc(name)}</li>" for name in results.missing)
        missing = _count(results.missing, "cell")
        head += f'<div class="warning"><b>No result yet for {missing}</b><ul>{names}</ul></div>'
    parts = groupby(document.tables, lambda table: table.section)
    sections = [section(title, "".join(_table(t, document) for t in tables)) for title, tables in parts]
    plates = "".join(_figure(figure) for figure in document.figures)
    sections.insert(1, section("Figures", f'<div class="plates">{plates}</div>' if plates else ""))
    words = _fold("Sentences", f"<ul>{_items(document.sentences)}</ul>") if document.sentences else ""
    sections.append(section("Every comparison in words", words))
    sections.append(section("Provenance", _provenance(document)))
    style = style_sheet("smopd.study", "report.css")
    return html_page(results.title or results.name, head, "".join(sections), style)


def inline_svg(figure: "Figure") -> str:
    """The drawing inside a page: no prolog, no style sheet of its own, ids that no other drawing has."""
    text = figure.svg[figure.svg.index("<svg") :].strip()
    text = re.sub(r"<(metadata|style)\b[^>]*>.*?</\1>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    prefix = "fig-" + re.sub(r"[^A-Za-z0-9]", "-", figure.name) + "-"
    text = re.sub(r'(\s(?:id|clip-path|mask)=")(?!url)', rf"\g<1>{prefix}", text)
    text = text.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    return text.replace("<svg", f'<svg role="img" aria-label="{esc(figure.title)}"', 1)


def _minus(text: str) -> str:
    """Escaped, with a true minus sign before a number."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\u2212", esc(text))


def _items(lines: list[str]) -> str:
    return "".join(f"<li>{_minus(line)}</li>" for line in lines)


def _fold(summary: str, body: str) -> str:
    return f"<details><summary>{esc(summary)}</summary>{body}</details>"


def _table(table: Table, document: Document) -> str:
    words = [' class="words"' if i in table.words else "" for i in range(len(table.heads))]
    heads = [esc(head.replace(", ", NEAR)) for head in table.heads]
    top = "".join(f'<th scope="col"{css}>{head}</th>' for css, head in zip(words, heads, strict=True))
    body, group = "", ""
    for row in table.rows:
        if row.group != group:
            group = row.group
            wide = f'<th scope="rowgroup" colspan="{len(table.heads)}">{esc(group)}</th>'
            body += f'<tr class="group">{wide}</tr>\n'
        columns = zip(words[1:], row.entries, strict=False)
        cells = "".join(f"<td{css}>{_entry(entry, document)}</td>" for css, entry in columns)
        body += f'<tr><th scope="row">{esc(row.label)}</th>{cells}</tr>\n'
    inner = _scrolled(top, body)
    inner = f'<p class="caption">{esc(table.caption)}</p>{inner}' if table.caption else inner
    inner = _fold("Show the table", inner) if table.fold else inner
    return f'<h3 id="table-{esc(table.name)}">{esc(table.title)}</h3>{inner}'


def _scrolled(top: str, body: str, css: str = "scroll") -> str:
    table = f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table>"
    return f'<div class="{css}">{table}</div>'


def _entry(entry: Entry, document: Document) -> str:
    if len(entry) == 1 and entry[0] in VERDICTS:
        css = str(entry[0]) if entry[0] in ("gain", "loss") else "open"
        return f'<span class="{css}">{esc(entry[0])}</span>'
    html = ""
    for part in entry:
        if isinstance(part, str):
            html += esc(part)
            continue
        value = "not defined" if part.value is None else f"{part.value:.10g}"
        places = sorted({document.places[folder] for folder in part.sources})
        title = f"{part.id} = {value}; {'run' if len(places) == 1 else 'runs'} {ranges(places)}"
        target = f'href="#set-{document.sets[part.sources]}" title="{esc(title)}"'
        html += f'<a class="n" {target}>{_minus(part.text)}</a>'
    return html


def _figure(figure: "Figure") -> str:
    drawing = f'<div class="plate">{inline_svg(figure)}</div>'
    width = re.search(r'<svg[^>]*\swidth="([\d.]+)pt"', figure.svg)
    css = ' class="wide"' if width and float(width[1]) > WIDE else ""
    title, caption = f"<figcaption>{esc(figure.title)}</figcaption>", esc(figure.caption)
    return f'<figure{css}>{title}{drawing}<p class="caption">{caption}</p></figure>\n'


def _provenance(document: Document) -> str:
    heads, rows = document.provenance(full=True)
    top = "".join(f'<th scope="col">{esc(head)}</th>' for head in heads)
    body = ""
    for number, *row in rows:
        titles = [f' title="{esc(cell)}"' if short(cell) != cell else "" for cell in row]
        cells = "".join(f"<td{t}>{esc(short(cell))}</td>" for t, cell in zip(titles, row, strict=True))
        body += f'<tr id="run-{number}"><th scope="row">{number}</th>{cells}</tr>\n'
    sets = ""
    for folders, place in document.sets.items():
        runs = [document.places[folder] for folder in folders]
        links = ", ".join(f'<a href="#run-{run}">{run}</a>' for run in runs)
        sets += f'<li id="set-{place}">runs {links}</li>\n'
    caption = (
        "One line a run. A number in a table above is a link to the set of runs it was computed from; "
        "resting on it shows its id in report.json, its unrounded value and those runs. Hashes are cut to "
        "twelve digits here and whole in report.json."
    )
    listed = f'<h3>Sets of runs</h3><ol class="sets">\n{sets}</ol>' if sets else ""
    return f'<p class="caption">{esc(caption)}</p>{_scrolled(top, body, "scroll origin")}{listed}'

"""A study report before it takes a form, and its forms: one HTML page without script or outside resource,
Markdown, LaTeX tables and JSON.

Every number of a table is a link to the set of runs it was computed from; its tooltip tells its id, its
unrounded value and those runs. It leaves out what the numbers are (tables.py).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

from smopd.formatting import esc
from smopd.pages import Markup, minus, render
from smopd.study.results import Cell, Results, json_by_rows
from smopd.study.table_parts import VERDICTS, StudyTable, TableNumber, point_label
from smopd.tables import Part, Row, Table, markdown

if TYPE_CHECKING:
    from smopd.study.drawing import Figure

_HASH = re.compile(r"\b[0-9a-f]{16,}\b")
WIDE = 500  # points; a wider drawing gets the whole width of the page


@dataclass(frozen=True)
class Document:
    """A study report before it takes a form."""

    results: Results
    tables: list[StudyTable]
    figures: list["Figure"]
    summary: list[str]  # what the study found, see tables.verdict_lines
    sentences: list[str]  # one a comparison

    @property
    def title(self) -> str:
        return self.results.title or self.results.name

    @cached_property
    def numbers(self) -> list[TableNumber]:
        """Every number of every table, once."""
        found: dict[str, TableNumber] = {}
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
        return {cell.source.folder: place for place, cell in enumerate(self.runs, 1)}

    @cached_property
    def sets(self) -> dict[tuple[str, ...], int]:
        """Every set of runs that some number was computed from, numbered from 1 in order of its first use."""
        folders = dict.fromkeys(number.sources for number in self.numbers)
        return dict(zip(folders, range(1, len(folders) + 1), strict=True))

    def sections(self) -> list[tuple[str, list[StudyTable]]]:
        return [(title, list(some)) for title, some in groupby(self.tables, lambda table: table.section)]

    def subtitle(self) -> str:
        r = self.results
        axes = "".join(f", {len(values)} values of {setting}" for setting, values in r.axes.items())
        played = f", each played {r.runs} times" if r.runs > 1 else ""
        grid = f"{_count(r.models, 'model')}, {_count(r.arms, 'arm')}{axes}, {_count(r.seeds, 'seed')}"
        rules = ", ".join(f"{task} {rule}" for task, rule in r.rules.items())
        judged = f", judged by {rules}" if rules else ""
        items = f"{_count(r.items, 'item')} of {r.data}{played}{judged}"
        return f"{r.name}: {grid}; {items}; every arm against {r.reference}"

    def provenance(self) -> Table:
        """Where every cell comes from, with whole hashes."""
        heads = ["run", "cell", "folder", "seed", "config", "data", "trained by", "evaluated by", "adapter"]
        rows = []
        for place, cell in enumerate(self.runs, 1):
            s = cell.source
            name = ", ".join(part for part in (cell.model, cell.arm, point_label(cell.axes)) if part)
            code = (s.trained_by or "", s.evaluated_by, s.adapter or "")
            seed = "" if s.seed is None else str(s.seed)
            rows.append(Row(str(place), (name, s.folder, seed, s.config, s.data, *code)))
        return Table(heads=heads, rows=rows, words=range(len(heads)))

    def linked(self, part: Part) -> Markup | None:
        """How the page shows a part of a cell that is a verdict or a number."""
        if isinstance(part, str):
            css = part if part in ("gain", "loss") else "open"
            return Markup('<span class="{}">{}</span>').format(css, part) if part in VERDICTS else None
        assert isinstance(part, TableNumber)
        value = "not defined" if part.value is None else f"{part.value:.10g}"
        places = sorted({self.places[folder] for folder in part.sources})
        title = f"{part.id} = {value}; {'run' if len(places) == 1 else 'runs'} {ranges(places)}"
        target = f'href="#set-{self.sets[part.sources]}" title="{esc(title)}"'
        return Markup(f'<a class="n" {target}>{minus(part.text)}</a>')


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
    missing = _count(document.results.missing, "cell")
    plates = []
    for figure in document.figures:
        width = re.search(r'<svg[^>]*\swidth="([\d.]+)pt"', figure.svg)
        plates.append((figure, inline_svg(figure), width is not None and float(width[1]) > WIDE))
    return str(render("study.html", document=document, missing=missing, plates=plates, short=short))


def inline_svg(figure: "Figure") -> Markup:
    """The drawing inside a page: no prolog, no style sheet of its own, ids that no other drawing has."""
    text = figure.svg[figure.svg.index("<svg") :].strip()
    text = re.sub(r"<(metadata|style)\b[^>]*>.*?</\1>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    prefix = "fig-" + re.sub(r"[^A-Za-z0-9]", "-", figure.name) + "-"
    text = re.sub(r'(\s(?:id|clip-path|mask)=")(?!url)', rf"\g<1>{prefix}", text)
    text = text.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{esc(figure.title)}"', 1))


def render_markdown(document: Document) -> str:
    """The whole report; figures are links into the folder figures/."""
    parts = [markdown_opening(document), markdown_tables(document.tables)]
    parts += ["## Figures", markdown_figures(document.figures, "figures")] if document.figures else []
    if document.sentences:
        parts += ["## Every comparison in words", _list(document.sentences)]
    about = "One line a run; `report.json` names the runs of every number and has the hashes in full."
    origin = short(document.provenance().markdown())
    return "\n\n".join(part for part in [*parts, "## Provenance", about, origin] if part) + "\n"


def markdown_opening(document: Document) -> str:
    results = document.results
    parts = [f"# {markdown(document.title)}", markdown(document.subtitle())]
    parts += [markdown(results.about), _list(document.summary)]
    parts += ["**No result yet for:**", _list(results.missing)] if results.missing else []
    return "\n\n".join(part for part in parts if part)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {markdown(line)}" for line in lines)


def markdown_tables(tables: Sequence[StudyTable]) -> str:
    parts = []
    for section, some in groupby(tables, lambda table: table.section):
        parts.append(f"## {markdown(section)}")
        for table in some:
            parts += [f"### {markdown(table.title)}", markdown(table.caption), table.markdown()]
    return "\n\n".join(part for part in parts if part)


def markdown_figures(figures: Sequence["Figure"], folder: str) -> str:
    """Figures as links into a folder."""
    parts = []
    for figure in figures:
        title = markdown(figure.title)
        parts += [f"### {title}", f"![{title}]({folder}/{figure.name}.svg)", markdown(figure.caption)]
    return "\n\n".join(part for part in parts if part)


def latex_table(table: StudyTable, document: Document) -> str:
    """A file for \\input: comments with the origin, then the table."""
    wanted = {folder for number in table.numbers() for folder in number.sources}
    sources = [cell.source for cell in document.runs if cell.source.folder in wanted]
    configs = "config hashes: " + " ".join(dict.fromkeys(short(s.config) for s in sources))
    data = "data hash: " + " ".join(dict.fromkeys(s.data for s in sources))
    name = f"{document.results.name}: {table.title}"
    return table.latex(name, table.caption, configs, data, "needs booktabs and graphicx")


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

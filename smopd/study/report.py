"""Study reports as HTML (one page, no script or outside resource), Markdown, LaTeX and JSON, and their audit.

Every number of a table links to its runs, with its id and unrounded value in a tooltip. The audit trusts
nothing between the conversations and the page: it verifies every reply, computes every number and renders
every file again, and names whatever differs.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby, takewhile, zip_longest
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smopd.errors import UserError
from smopd.files import require_writable, write_bytes
from smopd.formatting import esc
from smopd.pages import Markup, minus, render, render_text
from smopd.study.collect import collect
from smopd.study.results import Cell, Results, json_by_rows, load_results, round_finite, save_results
from smopd.study.run import StudyFolder, study_folders
from smopd.study.table_parts import VERDICTS, StudyTable, TableBuilder, TableNumber, point_label
from smopd.study.tables import comparison_sentences, make_tables, verdict_lines
from smopd.tables import Part, Row, Table, markdown
from smopd.tracking import Track, quiet

if TYPE_CHECKING:
    from smopd.study.drawing import Figure

_HASH = re.compile(r"\b[0-9a-f]{16,}\b")
SAME = 1e-9  # relative tolerance: last digits of sums may differ between processors


def publish(folder: StudyFolder, track: Track = quiet) -> tuple[Results, Path]:
    require_writable(folder.study_path / "report")
    results = collect(folder, track=track)
    save_results(folder.study_path / "results.json", results)
    return results, write_study_report(results, folder.study_path / "report", track)[0]


def publish_results(file: Path, out: Path | None, track: Track = quiet) -> Path:
    results = load_results(file)
    out = out or file.with_name(f"{file.name.removesuffix('.json')}-report")
    if out.is_file():
        raise UserError(f"{out}: is a file; the report is a folder, choose another --out")
    require_writable(out)
    return write_study_report(results, out, track)[0]


def audit_studies(path: Path, track: Track = quiet) -> list[str]:
    """List everything in the reports of a folder's studies that the raw conversations do not give."""
    folders = study_folders(path)
    if not folders:
        neither = "neither a run folder (no config.toml) nor the folder of a study (no studies/*/study.json)"
        raise UserError(f"{path}: {neither}")
    problems = []
    for folder in folders:
        report, stored = folder.study_path / "report", folder.study_path / "results.json"
        if not stored.exists() or not report.is_dir():
            raise UserError(f"{folder.study_path}: has no report to audit; make it with: smopd report {path}")
        fresh = collect(folder, rejudge=True, track=track)
        if load_results(stored) != fresh:
            problems.append(f"{stored}: is not what the conversations of the cells give")
        problems += audit_report(report, fresh)
    return problems


@dataclass(frozen=True)
class Document:
    results: Results
    tables: list[StudyTable]
    figures: list["Figure"]
    summary: list[str]  # see tables.verdict_lines
    sentences: list[str]  # one per comparison

    @property
    def title(self) -> str:
        return self.results.title or self.results.name

    @cached_property
    def numbers(self) -> list[TableNumber]:
        numbers = list(dict.fromkeys(number for table in self.tables for number in table.numbers()))
        assert len({number.id for number in numbers}) == len(numbers), "different numbers have the same id"
        return numbers

    @cached_property
    def runs(self) -> list[Cell]:
        """Base models first, then the cells; the number of a run is its place here, from 1."""
        return [*self.results.base, *self.results.cells]

    @cached_property
    def places(self) -> dict[str, int]:
        return {cell.source.folder: place for place, cell in enumerate(self.runs, 1)}

    @cached_property
    def sets(self) -> dict[tuple[str, ...], int]:
        """Every set of runs behind some number, numbered from 1 in order of first use."""
        sets = dict.fromkeys(number.sources for number in self.numbers)
        return {folders: place for place, folders in enumerate(sets, 1)}

    def sections(self) -> list[tuple[str, list[StudyTable]]]:
        return [(title, list(some)) for title, some in groupby(self.tables, lambda table: table.section)]

    def subtitle(self) -> str:
        r = self.results
        axes = "".join(f", {len(values)} values of {setting}" for setting, values in r.axes.items())
        played = f", each played {r.runs} times" if r.runs > 1 else ""
        grid = f"{_count(r.models, 'model')}, {_count(r.arms, 'arm')}{axes}, {_count(r.seeds, 'seed')}"
        rules = ", ".join(f"{task} {rule}" for task, rule in r.rules.items())
        items = f"{_count(r.items, 'item')} of {r.data}{played}{f', judged by {rules}' if rules else ''}"
        return f"{r.name}: {grid}; {items}; every arm against {r.reference}"

    def provenance(self) -> Table:
        heads = ["run", "cell", "folder", "seed", "config", "data", "trained by", "evaluated by", "adapter"]
        rows = []
        for place, cell in enumerate(self.runs, 1):
            s, name = cell.source, ", ".join(filter(None, (cell.model, cell.arm, point_label(cell.axes))))
            facts = (s.folder, s.seed, s.config, s.data, s.trained_by, s.evaluated_by, s.adapter)
            rows.append(Row(str(place), [name, *("" if fact is None else str(fact) for fact in facts)]))
        return Table(heads=heads, rows=rows, words=range(len(heads)))

    def linked(self, part: Part) -> Markup | None:
        """How the page shows a part of a cell: a verdict in colour, a number as a link."""
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
    return _HASH.sub(lambda match: match[0][:12], text)


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
    widths = [re.search(r'<svg[^>]*\swidth="([\d.]+)pt"', figure.svg) for figure in document.figures]
    wide = [width is not None and float(width[1]) > 500 for width in widths]  # take a page's full width
    plates = zip(document.figures, map(inline_svg, document.figures), wide, strict=True)
    return str(render("study.html", document=document, missing=missing, plates=[*plates], short=short))


def inline_svg(figure: "Figure") -> Markup:
    """The drawing for a page: no prolog, no style sheet, and ids that no other drawing has."""
    text = figure.svg[figure.svg.index("<svg") :].strip()
    text = re.sub(r"<(metadata|style)\b.*?</\1>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    prefix = "fig-" + re.sub(r"[^A-Za-z0-9]", "-", figure.name) + "-"
    text = re.sub(r'(\s(?:id|clip-path|mask)=")(?!url)', rf"\g<1>{prefix}", text)
    text = text.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    return Markup(text.replace("<svg", f'<svg role="img" aria-label="{esc(figure.title)}"', 1))


def render_markdown(document: Document, brief: bool = False) -> str:
    texts = {"document": document, "brief": brief, "md": markdown, "short": short}
    return render_text(__package__, "report.md.jinja", **texts)


def latex_table(table: StudyTable, document: Document) -> str:
    wanted = {folder for number in table.numbers() for folder in number.sources}
    sources = [cell.source for cell in document.runs if cell.source.folder in wanted]
    configs = "config hashes: " + " ".join(dict.fromkeys(short(s.config) for s in sources))
    data = "data hash: " + " ".join(dict.fromkeys(s.data for s in sources))
    name = f"{document.results.name}: {table.title}"
    return table.latex(name, table.caption, configs, data, "needs booktabs and graphicx")


def render_json(document: Document) -> str:
    results = document.results
    numbers = [asdict(n) | {"value": round_finite(n.value, 12)} for n in document.numbers]
    runs = [asdict(c.source) | {"model": c.model, "arm": c.arm, "axes": c.axes} for c in document.runs]
    tree = {name: getattr(results, name) for name in ("name", "title", "reference", "views", "data")}
    rows = {"missing": results.missing, "summary": document.summary, "numbers": numbers, "sources": runs}
    return json_by_rows(tree | rows, list(rows))


def make_document(results: Results) -> Document:
    from smopd.study.figures import make_figures

    make = TableBuilder(results)
    texts = verdict_lines(make), comparison_sentences(make)  # every format names missing cells itself
    return Document(results, make_tables(make), make_figures(results), *texts)


def render_files(document: Document) -> dict[str, bytes]:
    """All files of the report by path; the same results give the same bytes."""
    text = {"index.html": render_html(document), "report.md": render_markdown(document)}
    text["report.json"] = render_json(document)
    text |= {f"tables/{table.name}.tex": latex_table(table, document) for table in document.tables}
    text |= {f"figures/{figure.name}.svg": figure.svg for figure in document.figures}
    files = {path: content.encode("utf-8", "replace") for path, content in text.items()}
    return files | {f"figures/{figure.name}.pdf": figure.pdf for figure in document.figures}


def write_study_report(results: Results, out: Path, track: Track = quiet) -> list[Path]:
    """Write every file atomically, index.html first, and delete what an earlier report left."""
    with track(f"tables and figures of {results.name}"):
        files = render_files(make_document(results))
    for path, content in files.items():
        write_bytes(out / path, content)
    for path in _find_leftovers(out, files):
        (out / path).unlink()
    return [out / path for path in files]


def audit_report(out: Path, fresh: Results) -> list[str]:
    """List where the report on disk differs from `fresh`: number by number, then byte by byte."""
    files = render_files(make_document(fresh))
    problems = _numbers_differ(out / "report.json", files["report.json"])
    for path, content in files.items():
        try:
            there = (out / path).read_bytes()
        except FileNotFoundError:
            problems.append(f"{path}: missing")
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error}")
        else:
            problems += [f"{path}: {_first_difference(there, content)}"] if there != content else []
    return problems + [f"{path}: not part of this report" for path in _find_leftovers(out, files)]


def _numbers_differ(path: Path, recomputed: bytes) -> list[str]:
    try:
        old, new = (_numbers(json.loads(content)) for content in (path.read_bytes(), recomputed))
    except OSError:
        return []  # reported as a missing file
    except (ValueError, KeyError, TypeError) as error:
        return [f"{path.name}: holds no numbers that can be read: {error!r}"]
    problems = []
    for name in old | new:
        was, now = old.get(name), new.get(name)
        if was is None or now is None or was[0] != now[0] or not _same(was[1], now[1]):
            runs = dict.fromkeys(folder for number in (was, now) if number for folder in number[2])
            there, here = (f"{n[0]} ({n[1]})" if n else "no such number" for n in (was, now))
            problems.append(f"{name}: the report has {there}, recomputed {here}; from {', '.join(runs)}")
    return problems


def _numbers(report: Any) -> dict[str, tuple[str, Any, list[str]]]:
    return {str(n["id"]): (n["text"], n["value"], [*map(str, n["sources"])]) for n in report["numbers"]}


def _same(a: Any, b: Any) -> bool:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return isclose(a, b, rel_tol=SAME, abs_tol=SAME / 1000) if numbers else a == b


def _first_difference(there: bytes, wanted: bytes) -> str:
    try:
        lines, expected = there.decode().split("\n"), wanted.decode().split("\n")
    except UnicodeDecodeError:
        place = _count_equal(there, wanted)
        return f"differs from byte {place} on ({len(there):,} bytes, recomputed {len(wanted):,})"
    pairs = enumerate(zip_longest(lines, expected), 1)
    number, was, now = next((number, was, now) for number, (was, now) in pairs if was != now)
    return f"differs from line {number} on: {_excerpt(was, now)}, recomputed {_excerpt(now, was)}"


def _count_equal(a: Sequence[Any], b: Sequence[Any]) -> int:
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))])


def _excerpt(line: str | None, other: str | None) -> str:
    if line is None:
        return "the file has ended"
    start = _count_equal(line, other or "")
    return repr("…" * (start > 60) + line[max(0, start - 60) : start + 60] + "…" * (len(line) > start + 60))


def _find_leftovers(out: Path, files: dict[str, bytes]) -> list[str]:
    kinds = ("figures/*.svg", "figures/*.pdf", "tables/*.tex")  # what a report may delete
    there = {path.relative_to(out).as_posix() for k in kinds for path in out.glob(k) if path.is_file()}
    return sorted(there - files.keys())

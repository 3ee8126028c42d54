"""A study report on disk: written whole, and audited.

The audit trusts nothing between the conversations and the page: every reply is verified anew, every number
computed anew, every file of the report rendered anew, and whatever differs is named.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.files import require_writable, write_bytes
from smopd.study.collect import collect
from smopd.study.render import Document, latex_table, render_html, render_json, render_markdown
from smopd.study.results import Results, load_results, save_results
from smopd.study.run import StudyFolder, study_folders
from smopd.study.table_parts import TableBuilder
from smopd.study.tables import comparison_sentences, make_tables, verdict_lines
from smopd.tracking import Track, quiet

OWNED = ("figures/*.svg", "figures/*.pdf", "tables/*.tex")  # what a report may remove
SAME = 1e-9  # relative: sums may differ in their last digits between processors


def publish(folder: StudyFolder, track: Track = quiet) -> tuple[Results, Path]:
    """Collect a study's cells, write results.json and the report; the results and the page."""
    require_writable(folder.study_path / "report")
    results = collect(folder, track=track)
    save_results(folder.study_path / "results.json", results)
    write_study_report(results, folder.study_path / "report", track)
    return results, folder.study_path / "report" / "index.html"


def publish_results(file: Path, out: Path | None, track: Track = quiet) -> Path:
    """The report of a results.json alone, which needs no run folder."""
    results = load_results(file)
    out = out or file.with_name(f"{file.name.removesuffix('.json')}-report")
    if out.is_file():
        raise UserError(f"{out}: is a file; the report is a folder, choose another --out")
    require_writable(out)
    write_study_report(results, out, track)
    return out / "index.html"


def audit_studies(path: Path, track: Track = quiet) -> list[str]:
    """Everything in the reports of a folder's studies that the raw conversations do not give."""
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


def make_document(results: Results) -> Document:
    """The report before it takes a form."""
    from smopd.study.figures import make_figures

    effects = TableBuilder(results).effects
    # The forms name missing cells themselves.
    words = verdict_lines(replace(results, missing=[]), effects), comparison_sentences(results, effects)
    return Document(results, make_tables(results, effects), make_figures(results), *words)


def render_files(document: Document) -> dict[str, bytes]:
    """Every file of the report: path inside its folder -> content. Same results, same bytes."""
    text = {"index.html": render_html(document), "report.md": render_markdown(document)}
    text["report.json"] = render_json(document)
    text |= {f"tables/{table.name}.tex": latex_table(table, document) for table in document.tables}
    text |= {f"figures/{figure.name}.svg": figure.svg for figure in document.figures}
    files = {path: content.encode("utf-8", "replace") for path, content in text.items()}
    return files | {f"figures/{figure.name}.pdf": figure.pdf for figure in document.figures}


def write_study_report(results: Results, out: Path, track: Track = quiet) -> list[Path]:
    """Write every file, each whole or not at all; remove what an earlier report left."""
    with track(f"tables and figures of {results.name}"):
        files = render_files(make_document(results))
    for path, content in files.items():
        write_bytes(out / path, content)
    for path in _left_over(out, files):
        (out / path).unlink()
    return [out / path for path in files]


def audit_report(out: Path, fresh: Results) -> list[str]:
    """Where the report on disk differs from what `fresh` gives: number by number, then byte by byte."""
    files = render_files(make_document(fresh))
    found = _numbers_differ(out / "report.json", files["report.json"])
    for path, content in files.items():
        try:
            there = (out / path).read_bytes()
        except FileNotFoundError:
            found.append(f"{path}: missing")
        except OSError as error:
            found.append(f"{path}: cannot be read: {error}")
        else:
            found += [f"{path}: {_first_difference(there, content)}"] if there != content else []
    return found + [f"{path}: not part of this report" for path in _left_over(out, files)]


def _numbers_differ(path: Path, recomputed: bytes) -> list[str]:
    try:
        old = _numbers(json.loads(path.read_bytes()))
    except OSError:
        return []  # named as missing among the files
    except (ValueError, KeyError, TypeError) as error:
        return [f"{path.name}: holds no numbers that can be read: {error!r}"]
    new, found = _numbers(json.loads(recomputed)), []
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name), new.get(name)
        if was is None or now is None or was[0] != now[0] or not _same(was[1], now[1]):
            runs = dict.fromkeys(folder for number in (was, now) if number for folder in number[2])
            there, here = (f"{n[0]} ({n[1]})" if n else "no such number" for n in (was, now))
            found.append(f"{name}: the report has {there}, recomputed {here}; from {', '.join(runs)}")
    return found


def _numbers(report: Any) -> dict[str, tuple[str, Any, list[str]]]:
    return {str(n["id"]): (n["text"], n["value"], [*map(str, n["sources"])]) for n in report["numbers"]}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= SAME * max(abs(a), abs(b), 1e-3)
    return a == b


def _first_difference(there: bytes, wanted: bytes) -> str:
    try:
        lines, expected = there.decode().split("\n"), wanted.decode().split("\n")
    except UnicodeDecodeError:
        place = _unlike_from(there, wanted)
        return f"differs from byte {place} on ({len(there):,} bytes, recomputed {len(wanted):,})"
    number = _unlike_from(lines, expected)
    was, now = (text[number] if number < len(text) else None for text in (lines, expected))
    return f"differs from line {number + 1} on: {_excerpt(was, now)}, recomputed {_excerpt(now, was)}"


def _unlike_from(a: Sequence[Any], b: Sequence[Any]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _excerpt(line: str | None, other: str | None) -> str:
    """A line around its first difference from another, so that a long one stays readable."""
    if line is None:
        return "the file has ended"
    start = _unlike_from(line, other or "")
    return repr("…" * (start > 60) + line[max(0, start - 60) : start + 60] + "…" * (len(line) > start + 60))


def _left_over(out: Path, files: dict[str, bytes]) -> list[str]:
    """Figures and tables in the report's two folders that this report does not have."""
    there = sorted(path for kind in OWNED for path in out.glob(kind) if path.is_file())
    return [name for name in (path.relative_to(out).as_posix() for path in there) if name not in files]

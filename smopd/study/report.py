"""A study report on disk: written whole, and checked against results computed anew.

Writing and checking share one function that renders every file in memory, so a report agrees exactly if its
bytes do. It leaves out where results come from: the caller reads them from the run folders.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.files import write_bytes
from smopd.study.figures import make_figures
from smopd.study.render import Document
from smopd.study.render_html import render_html
from smopd.study.render_text import latex_table, render_json, render_markdown
from smopd.study.results import Results
from smopd.study.table_parts import Maker
from smopd.study.tables import comparison_sentences, make_tables, verdict_lines

OWNED = {"figures": (".svg", ".pdf"), "tables": (".tex",)}  # folder -> what a report puts there
SAME = 1e-9  # relative: sums may differ in their last digits between processors


def make_document(results: Results) -> Document:
    """The report before it takes a form."""
    effects = Maker(results).effects
    # The forms name missing cells themselves.
    words = verdict_lines(replace(results, missing=[]), effects), comparison_sentences(results, effects)
    return Document(results, make_tables(results, effects), make_figures(results), *words)


def render_files(document: Document) -> dict[str, bytes]:
    """Every file of the report: path inside its folder -> content. Same results, same bytes."""
    text = {"index.html": render_html(document), "report.md": render_markdown(document)}
    text |= {"report.json": render_json(document)}
    text |= {f"tables/{table.name}.tex": latex_table(table, document) for table in document.tables}
    text |= {f"figures/{figure.name}.svg": figure.svg for figure in document.figures}
    files = {path: content.encode("utf-8", "replace") for path, content in text.items()}
    return files | {f"figures/{figure.name}.pdf": figure.pdf for figure in document.figures}


def write_study_report(results: Results, out: Path) -> list[Path]:
    """Write every file, each whole or not at all; remove what an earlier report left."""
    files = render_files(make_document(results))
    for path, content in files.items():
        write_bytes(out / path, content)
    for path in _left_over(out, files):
        (out / path).unlink()
    return [out / path for path in files]


def audit_report(out: Path, fresh: Results) -> list[str]:
    """Where the report on disk differs from what `fresh` gives: number by number, then byte by byte."""
    document = make_document(fresh)
    files = render_files(document)
    found = _numbers_differ(out / "report.json", files["report.json"])
    for path, content in files.items():
        try:
            there = (out / path).read_bytes()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            found.append(f"{path}: {'missing' if missing else f'cannot be read: {error}'}")
            continue
        if there != content:
            found.append(f"{path}: {_first_difference(there, content)}")
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
        if was is None or now is None or was["text"] != now["text"] or not _same(was["value"], now["value"]):
            runs = dict.fromkeys(folder for number in (was, now) if number for folder in number["sources"])
            there = f"the report has {_shown(was)}, recomputed {_shown(now)}"
            found.append(f"{name}: {there}; from {', '.join(runs)}")
    return found


def _numbers(report: Any) -> dict[str, dict[str, Any]]:
    found = {}
    for n in report["numbers"]:
        sources = [*map(str, n["sources"])]
        found[str(n["id"])] = {"text": n["text"], "value": n["value"], "sources": sources}
    return found


def _shown(number: dict[str, Any] | None) -> str:
    return "no such number" if number is None else f"{number['text']} ({number['value']})"


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
    """The first place at which two sequences differ."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def _excerpt(line: str | None, other: str | None) -> str:
    """A line around its first difference from another, so that a long one stays readable."""
    if line is None:
        return "the file has ended"
    start = _unlike_from(line, other or "")
    first = max(0, start - 60)
    return repr(("…" if first else "") + line[first : start + 60] + ("…" if len(line) > start + 60 else ""))


def _left_over(out: Path, files: dict[str, bytes]) -> list[str]:
    """Figures and tables in the report's two folders that this report does not have."""
    found = []
    for folder, suffixes in OWNED.items():
        there = sorted((out / folder).iterdir()) if (out / folder).is_dir() else []
        names = [f"{folder}/{path.name}" for path in there if path.suffix in suffixes and path.is_file()]
        found += [name for name in names if name not in files]
    return found

"""Raw public files: where each comes from, and reading them with every complaint naming file, line and field.

It leaves out what the fields mean: that is the reader's of each source.
"""

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smopd.errors import UserError


@dataclass(frozen=True)
class Item:
    """One task of a source, before it is sharded.

    `text` is what the sharder splits, `extra` are shards that follow it whatever it does; `reference` is a
    reply that must verify as correct.
    """

    id: str
    task: str
    system: str
    text: str
    full: str
    answer: dict[str, Any]
    file: str
    reference: str
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A project whose files are read, and what its licence asks for."""

    name: str
    project: str
    licence: str
    credit: str


SOURCES = {
    "math": Source("GSM8K", "github.com/openai/grade-school-math", "MIT", "Cobbe et al. 2021"),
    "actions": Source("BFCL v4", "github.com/ShishirPatil/gorilla", "Apache-2.0", "Patil et al. 2025"),
    "database": Source("Spider", "github.com/taoyds/spider", "CC BY-SA 4.0", "Yu et al. 2018"),
    "code": Source(
        "MBPP", "github.com/google-research/google-research, mbpp", "CC-BY-4.0", "Austin et al. 2021"
    ),
}


def need(raw: Path, task: str, *names: str) -> Path:
    """The first of these files that is there; a UserError says which is missing and where to get it."""
    found = next((raw / name for name in names if (raw / name).is_file()), None)
    if found is None:
        others = ",".join(d for d in SOURCES if d != task)
        raise UserError(
            f"{raw / names[0]}: missing; it comes from {SOURCES[task].project}. Put it there, or leave the "
            f"domain out with --domains {others}"
        )
    return found


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_text(path: Path) -> str:
    """A text file, unpacked where its name ends in .gz."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def read_lines(path: Path, fields: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every line of JSON lines."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        where = f"{path}, line {number}"
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{where}: not valid JSON: {error.msg} (column {error.colno})") from None
            yield where, _checked(row, fields, where)


def read_array(path: Path, fields: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of every item of a JSON array."""
    try:
        rows = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from None
    if not isinstance(rows, list):
        raise UserError(f"{path}: expected a JSON array, found {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        yield f"{path}, item {number}", _checked(row, fields, f"{path}, item {number}")


def text_of(row: dict[str, Any], field: str, where: str) -> str:
    """A field that must be a text with something in it."""
    value = row[field]
    if not isinstance(value, str) or not value.strip():
        found = json.dumps(value)[:60]
        raise UserError(f"{where}, field '{field}': expected a non-empty text, found {found}")
    return value


def _checked(row: Any, fields: Sequence[str], where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(row).__name__}")
    for field in fields:
        if field not in row:
            raise UserError(f"{where}, field '{field}': missing")
    return row

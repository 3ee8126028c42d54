"""Raw public files: where each comes from, and reading their rows."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smopd.data.reading import as_record, json_items
from smopd.errors import UserError
from smopd.files import decode, read_bytes
from smopd.verify.task import Record


@dataclass(frozen=True)
class Item:
    """One task of a source, before it is sharded."""

    id: str
    task: str
    system: str
    text: str  # what the sharder splits
    full: str
    answer: dict[str, Any]
    file: str
    reference: str  # a reply that must verify as correct
    extra: tuple[str, ...] = ()  # shards that follow those of the text


@dataclass(frozen=True)
class RawSource:
    """A project whose files are read, and what its licence asks for."""

    name: str
    project: str
    licence: str
    credit: str


_GOOGLE = "github.com/google-research/google-research"
SOURCES = {
    "math": RawSource("GSM8K", "github.com/openai/grade-school-math", "MIT", "Cobbe et al. 2021"),
    "actions": RawSource("BFCL v4", "github.com/ShishirPatil/gorilla", "Apache-2.0", "Patil et al. 2025"),
    "database": RawSource("Spider", "github.com/taoyds/spider", "CC BY-SA 4.0", "Yu et al. 2018"),
    "code": RawSource("MBPP", f"{_GOOGLE}, mbpp", "CC-BY-4.0", "Austin et al. 2021"),
}


def need(raw: Path, task: str, *names: str) -> Path:
    """The first of these files that is there; a UserError says which is missing and where to get it."""
    found = next((raw / name for name in names if (raw / name).is_file()), None)
    if found is None:
        others = ",".join(d for d in SOURCES if d != task)
        missing = f"{raw / names[0]}: missing; it comes from {SOURCES[task].project}"
        raise UserError(f"{missing}. Put it there, or leave the domain out with --domains {others}")
    return found


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_rows(path: Path) -> Iterator[Record]:
    """Every line of JSON lines or item of a JSON array, objects all; unpacked where its name ends in .gz."""
    data = read_bytes(path)
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path}: not a whole gzip file: {error}") from None
    for where, item in json_items(decode(data, str(path)), path):
        yield as_record(item, where)

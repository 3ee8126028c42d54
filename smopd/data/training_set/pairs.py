"""Question and answer pairs of one's own as sharded examples: fields named by the user, dropped rows listed
with line and reason.

It leaves out checking answers of one's own tasks: their verifier knows, and `smopd data check` asks it
nothing it cannot tell.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smopd.data import lic
from smopd.data.example import Example
from smopd.data.sharding import normalise
from smopd.data.tasks import UNSCORED, missing, scored
from smopd.data.training_set.compose import Sharder, by_rule
from smopd.data.training_set.raw import read_array, read_lines, read_text
from smopd.errors import UserError

SYSTEMS = {"math": lic.MATH, "code": lic.CODE}


@dataclass(frozen=True)
class Row:
    """One pair as read."""

    where: str
    id: str
    question: str
    answer: dict[str, Any]
    system: str


def read_pairs(path: Path, task: str, question: str, answer: str, system: str | None) -> list[Row]:
    """The pairs of JSON lines or a JSON array; `system` None means the task's own prompt, or the row's field
    of that name.
    """
    if task in UNSCORED or not re.fullmatch(r"[\w.-]+", task):
        raise UserError(f"--task: expected {', '.join(scored())} or one word of your own, found {task!r}")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    read = read_array if read_text(path).lstrip().startswith("[") else read_lines
    rows: list[Row] = []
    seen: dict[str, str] = {}
    for number, (where, row) in enumerate(read(path, (question, answer)), 1):
        text, id = row[question], row.get("id", f"{path.stem}/{number}")
        if not isinstance(text, str) or not text.strip():
            raise UserError(
                f"{where}, field '{question}': expected a non-empty text, found {json.dumps(text)[:60]}"
            )
        if not isinstance(id, (str, int)) or str(id) in seen:
            again = (
                f"{id!r} is that of {seen[str(id)]} too"
                if isinstance(id, (str, int))
                else "expected a text or a number"
            )
            raise UserError(f"{where}, field 'id': {again}")
        seen[str(id)] = where
        told = answer_of(task, row[answer], f"{where}, field '{answer}'")
        prompt = system if system is not None else row.get("system", SYSTEMS.get(task, ""))
        if not isinstance(prompt, str):
            raise UserError(f"{where}, field 'system': expected a text, found {json.dumps(prompt)[:60]}")
        rows.append(Row(where, str(id), normalise(text), told, _filled(prompt, told)))
    if not rows:
        raise UserError(f"{path}: holds no rows")
    return rows


def answer_of(task: str, value: Any, where: str) -> dict[str, Any]:
    """An answer as the verifier of its task takes it: an object as it is, a number or text as {"value": ...}."""
    if not isinstance(value, dict):
        if value is None or (isinstance(value, (list, bool)) and task == "math"):
            raise UserError(
                f"{where}: expected a number, a text or an object, found {json.dumps(value)[:60]}"
            )
        value = {"value": _math_value(value, where) if task == "math" else value}
    if lacks := missing(task, value):
        raise UserError(f"{where}: a {task} answer needs {lacks}; give an object that has it")
    return value


def _math_value(value: Any, where: str) -> str:
    text = str(value).rsplit("####", 1)[-1].strip()
    if not any(c.isdigit() for c in text):
        raise UserError(
            f"{where}: expected a number or a text that ends in '#### <number>', found {json.dumps(value)[:60]}"
        )
    return text


def _filled(prompt: str, answer: dict[str, Any]) -> str:
    functions = "\n".join(json.dumps(f) for f in answer.get("functions") or ())
    return prompt.replace("{functions}", functions).replace("{schema}", str(answer.get("schema_sql", "")))


def shard_pairs(
    rows: Sequence[Row], task: str, source: str, sharder: Sharder = by_rule
) -> tuple[list[Example], list[dict[str, str]]]:
    """(examples, what was dropped: where and why)."""
    examples, dropped = [], []
    for row, found in zip(rows, sharder([row.question for row in rows]), strict=True):
        if isinstance(found, str):
            dropped.append({"where": row.where, "reason": found})
        else:
            examples.append(Example(row.id, task, row.system, found, row.question, row.answer, source))
    return examples, dropped

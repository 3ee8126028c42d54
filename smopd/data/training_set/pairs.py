"""The user's questions and answers as sharded examples: fields named by the user, dropped rows listed."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.data.example import Example
from smopd.data.sharding import Sharder, normalise
from smopd.data.training_set.readers import read_rows
from smopd.errors import UserError
from smopd.verify import tasks
from smopd.verify.task import Task


def read_pairs(
    path: Path, name: str, question: str, answer: str, system: str | None, source: str
) -> dict[str, Example]:
    """The pairs of JSON lines or a JSON array for a task, by place, as examples without shards. Where
    `system` is None, the prompt is the row's field of that name, or else the task's own.
    """
    task = tasks.find(name)
    if (task and not task.judge) or not re.fullmatch(r"[\w.-]+", name):
        expected = f"{', '.join(tasks.scored())} or one word of your own"
        raise UserError(f"--task: expected {expected}, found {name!r}")
    task = task or Task(name)  # a task whose verifier is still to be written
    own_prompt = "" if task.placeholder else task.system
    rows: dict[str, Example] = {}
    places: dict[str, str] = {}
    for number, row in enumerate(read_rows(path), 1):
        id = row.get("id", f"{path.stem}/{number}")
        if not isinstance(id, (str, int)):
            raise row.error("id", "expected a text or a number")
        if (first := places.setdefault(str(id), row.where)) != row.where:
            raise row.error("id", f"{id!r} is that of {first} too")
        text, right = row.text(question), answer_of(task, row[answer], f"{row.where}, field '{answer}'")
        prompt = row.get("system", own_prompt) if system is None else system
        if not isinstance(prompt, str):
            raise row.error("system", f"expected a text, found {json.dumps(prompt)[:60]}")
        prompt, text = tasks.fill(prompt, right), normalise(text)
        rows[row.where] = Example(str(id), name, prompt, (), text, right, source)
    if not rows:
        raise UserError(f"{path}: holds no rows")
    return rows


def answer_of(task: Task, value: Any, where: str) -> dict[str, Any]:
    """An answer as the task's verifier takes it: an object as it is, a number or text as {"value": ...}."""
    if not isinstance(value, dict):
        try:
            if value is None:
                raise ValueError("expected a number, a text or an object")
            value = {"value": task.plain_answer(value)}
        except ValueError as error:
            raise UserError(f"{where}: {error}, found {json.dumps(value)[:60]}") from None
    if missing := task.missing(value):
        raise UserError(f"{where}: a {task.name} answer needs {missing}; give an object that has it")
    return value


def shard_pairs(rows: Mapping[str, Example], sharder: Sharder) -> tuple[list[Example], list[dict[str, str]]]:
    """(examples, what was dropped: where and why)."""
    examples, dropped = [], []
    for where, result in zip(rows, sharder([row.full for row in rows.values()]), strict=True):
        if isinstance(result, str):
            dropped.append({"where": where, "reason": result})
        else:
            examples.append(replace(rows[where], shards=result))
    return examples, dropped

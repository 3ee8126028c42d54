"""Examples from Python objects: dicts or `Example`s, a dict of columns, a `datasets.Dataset`, a DataFrame.

docs/python.md describes the columns. A dict with an unknown key is refused; unknown columns and empty cells
of a table are left out. A plain answer is stored as {"value": ...}; a text that is a JSON object is parsed,
since a column of a table cannot hold objects of different shapes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.data.example import Example
from smopd.data.reading import load_examples, parse_item, refuse_twins, without_empty
from smopd.errors import UserError
from smopd.verify.task import Record

FIELD = "value"  # key under which a plain answer is stored
COLUMNS = ("id", "task", "system", "shards", "messages", "full", "answer", "source")


def rereadable(rows: Any, name: str) -> Any:
    """Make rows readable more than once: a generator or a dict of columns becomes a list."""
    if not isinstance(rows, Mapping):
        return list(rows) if isinstance(rows, Iterator) else rows
    if unknown := [key for key in rows if key not in COLUMNS]:
        hint = "; of several splits pass one" if hasattr(rows[unknown[0]], "column_names") else ""
        raise UserError(f"{name}: unknown column {unknown[0]!r}; the columns are {', '.join(COLUMNS)}{hint}")
    rows = {key: list(column) if isinstance(column, Iterator) else column for key, column in rows.items()}
    for key, column in rows.items():
        if isinstance(column, str | Mapping) or not hasattr(column, "__len__"):
            expected = f"expected a list with a value for every example, found {type(column).__name__}"
            raise UserError(f"{name}, column '{key}': {expected}; a single example goes into a list")
    if len({len(column) for column in rows.values()}) > 1:
        counts = ", ".join(f"'{key}' has {len(column)}" for key, column in rows.items())
        raise UserError(f"{name}: the columns differ in length: {counts}")
    return [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]


def plain_answers(rows: Any) -> bool:
    """Whether answers are plain values instead of objects, judging by the first one."""
    known = [row for row in _rows(rows) if isinstance(row, Example | Mapping)]
    answers = (row.answer if isinstance(row, Example) else row.get("answer") for row in known)
    return not isinstance(_answer(next((a for a in answers if a is not None), {})), Mapping)


def as_examples(
    rows: Any, name: str, task: str = "", field: str = FIELD, every: bool = False
) -> list[Example]:
    """The examples of `rows`, or of the file it names. `task`: for those that name none, or for `every` one;
    `field`: the key of a plain answer; `name`: what error messages call the rows.
    """
    if isinstance(rows, str | Path):
        return [replace(e, task=task) if every else e for e in load_examples(rows)]
    table = not isinstance(rows, list | tuple)
    examples = []
    for number, row in enumerate(_rows(rows), 1):
        where = f"{name}, example {number}"
        if isinstance(row, Example):
            examples.append(replace(row, task=task) if every else row)
            continue
        if not isinstance(row, Mapping):
            raise UserError(f"{where}: expected a dict or an Example, found {type(row).__name__}")
        # Arrays become lists: Parquet files and formatted data sets hold them.
        plain = {k: v.tolist() if getattr(v, "ndim", 0) else v for k, v in row.items() if v is not None}
        filled = without_empty(plain) if table else plain
        filled |= {"task": task} if every else {}
        examples.append(_example(Record(filled, where), number, table, task, field))
    if not examples:
        raise UserError(f"{name}: holds no examples")
    refuse_twins(examples, name)
    return examples


def _rows(rows: Any) -> Iterable[Any]:
    if isinstance(rows, str | Path):
        return ()
    if hasattr(rows, "notna") and hasattr(rows, "columns"):  # a pandas DataFrame: several kinds of empty
        filled = rows.astype(object).where(rows.notna(), None).to_dict("records")
        return [{str(key): value for key, value in row.items()} for row in filled]
    try:
        return list(rows)
    except TypeError:
        forms = "a list of dicts, a dict of columns, a datasets.Dataset, a DataFrame or a file"
        raise UserError(f"examples: expected {forms}, found {type(rows).__name__}") from None


def _example(row: Record, number: int, table: bool, task: str, field: str) -> Example:
    if "task_id" in row:
        return parse_item(dict(row), row.where)
    item = {key: value for key, value in row.items() if key in COLUMNS or not table}
    if "messages" in item:
        item |= _from_messages(row)
        del item["messages"]
    if unknown := sorted(set(item) - set(COLUMNS)):
        raise row.error(unknown[0], f"unknown; an example has {', '.join(COLUMNS)}")
    item["id"] = str(item.get("id", number))
    item["task"] = item.get("task") or task
    if not item["task"]:
        raise row.error("task", "missing, so nobody can judge a reply; name a task, or pass verifier=")
    answer = _answer(row["answer"])
    answer = dict(answer) if isinstance(answer, Mapping) else {field: answer}
    try:
        item["answer"] = json.loads(json.dumps(answer))
    except (TypeError, ValueError) as error:
        raise row.error("answer", f"is not plain JSON: {error}") from None
    return parse_item(item, row.where)


def _from_messages(row: Record) -> dict[str, Any]:
    if "shards" in row:
        raise row.error("messages", "stands beside 'shards', which says the same; give one of them")
    messages, texts = row["messages"], {"system": list[str](), "user": list[str](), "assistant": list[str]()}
    if not isinstance(messages, list | tuple):
        raise row.error("messages", f"expected a list of messages, found {type(messages).__name__}")
    for number, message in enumerate(messages, 1):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in texts or not isinstance(message.get("content"), str):
            form = "expected {'role': 'system' | 'user' | 'assistant', 'content': TEXT}"
            raise row.error("messages", f"message {number}: {form}")
        texts[role].append(message["content"])
    if texts["system"] and row.get("system"):
        raise row.error("messages", "holds a system message, and so does the field 'system'; give one")
    return {"shards": texts["user"]} | ({"system": "\n\n".join(texts["system"])} if texts["system"] else {})


def _answer(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") and not isinstance(value, Mapping) else value  # numpy's
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(json.JSONDecodeError):
            return json.loads(value)
    return value

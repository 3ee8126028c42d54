"""The reader of data sets: our JSONL, LiC's JSON arrays as they are, `hf:NAME` for the hub, generated worlds.

Every complaint names the file, the line (or item) and the field.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smopd.data import everyday
from smopd.data.example import Example
from smopd.data.hub import hub_rows
from smopd.data.pocket_world import MOST, SIZES, Split, generate
from smopd.errors import UserError
from smopd.files import LONE_SURROGATE, json_problem, read_text
from smopd.verify import tasks
from smopd.verify.task import Record

_FIELDS = tuple(Example.__dataclass_fields__)
_OPTIONAL = ("system", "source")
LONGEST = 1_000_000  # characters of a field, more than the context of any model
DEEPEST = 64  # levels of lists and objects


def generated(name: str) -> bool:
    """Whether it names examples of a built-in world: no file, and the same on every machine."""
    return re.match(r"pocket:|everyday[@:]", name) is not None


def load_examples(path: str | Path, limit: int | None = None) -> list[Example]:
    """Read a data set: JSONL of ours, LiC's JSON array, `hf:NAME[@CONFIG][:SPLIT]`, or a world.

    `pocket:train` and `pocket:eval` may end in a size (`pocket:eval:100`) or a range (`pocket:eval:401-800`).
    """
    name = str(path)
    if name.startswith("pocket:"):
        examples = _pocket(name)
    elif re.match(r"everyday[@:]", name):
        examples = everyday.named(name)
    else:
        items = hub_rows(name, frozenset(_FIELDS)) if name.startswith("hf:") else file_items(Path(name))
        examples = [parse_item(item, where) for where, item in items]
    if not examples:
        raise UserError(f"{name}: holds no examples")
    refuse_twins(examples, name)
    return examples if limit is None else examples[:limit]


def refuse_twins(examples: list[Example], name: str) -> None:
    """A UserError where two examples have the same id."""
    seen: dict[str, int] = {}
    for number, example in enumerate(examples, 1):
        if (first := seen.setdefault(example.id, number)) != number:
            both = f"example {number} and example {first}"
            raise UserError(f"{name}: {both} have the same id {example.id!r}; ids must differ")


def scorable(examples: list[Example], name: str) -> list[Example]:
    """The same examples; a UserError if one is of a task without a verifier."""
    scored = tasks.scored()
    if bad := next((example for example in examples if example.task not in scored), None):
        raise UserError(f"{name}: {bad.id}: task {tasks.not_scored(bad.task)}")
    return examples


def _pocket(name: str) -> list[Example]:
    found = re.fullmatch(r"pocket:(train|eval)(?::(?:(\d{1,9})-)?(\d{1,9}))?", name)
    if found:
        split: Split = "train" if found[1] == "train" else "eval"
        first, last = int(found[2] or 1), int(found[3] or SIZES[split])
        if last > MOST:
            raise UserError(f"{name}: at most {MOST:,} examples of a generated world are read at once")
        if 1 <= first <= last:
            return generate(split, last)[first - 1 :]
    raise UserError(
        f"{name}: the pocket world is named pocket:train or pocket:eval, with an optional size as in "
        "pocket:eval:100, or the first and the last of them as in pocket:eval:401-800"
    )


def file_items(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, item) of every line of JSONL or item of a JSON array; where there is no JSON, a UserError."""
    return json_items(read_text(path, kind="data file"), path)


def json_items(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """The same of a text."""
    if text.lstrip().startswith("["):
        items = _json(text, str(path), array=True)
        if isinstance(items, UserError):
            yield str(path), items
        else:
            yield from ((f"{path}, item {number}", item) for number, item in enumerate(items, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", _json(line, f"{path}, line {number}")


def _json(text: str, where: str, array: bool = False) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}" if array else where
        return UserError(f"{place}: not valid JSON: {error.msg} (column {error.colno})")
    except _NoNumber as error:
        return UserError(f"{where}: not valid JSON: {error} is no number")
    except (ValueError, RecursionError) as error:
        return UserError(f"{where}: not valid JSON: {json_problem(error)}")


class _NoNumber(ValueError):
    """NaN or an infinity, which Python's reader would take."""


def _no_number(name: str) -> Any:
    raise _NoNumber(name)


def as_record(item: Any, where: str) -> Record:
    """An item that must be a JSON object, of text that can be written again and is not too long to play."""
    if isinstance(item, UserError):
        raise item
    if not isinstance(item, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(item).__name__}")
    record = Record(item, where)
    for field, value in [("", [*item]), *item.items()]:
        characters = 0
        for text in _texts(value, record, field):
            characters += len(text)
            if not text.isascii() and (lone := LONE_SURROGATE.search(text)):
                half = f"half a character (\\u{ord(lone[0]):04x} without its other half)"
                raise record.error(field, f"{half}; write the character itself, or both halves")
        if characters > LONGEST:
            raise record.error(field, f"{characters:,} characters; at most {LONGEST:,} can be played")
    return record


def _texts(value: Any, record: Record, field: str, depth: int = 0) -> Iterator[str]:
    """Every text in a JSON value."""
    if depth > DEEPEST:
        raise record.error(field, f"nested too deeply; at most {DEEPEST} levels")
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(inner, record, field, depth + 1)


def parse_item(item: Any, where: str) -> Example:
    """One example from its JSON, ours or LiC's; `where` is how a complaint names its place."""
    record = as_record(item, where)
    if "task_id" in item:
        return _example(Record(_lic_fields(record), where))
    for field in _FIELDS:
        if field not in _OPTIONAL:
            record[field]  # a complaint where it is missing
    if unknown := sorted(set(item) - set(_FIELDS)):
        raise record.error(unknown[0], f"unknown; an example has {', '.join(_FIELDS)}")
    return _example(Record({"system": "", "source": ""} | item, where))


def _lic_fields(item: Record) -> dict[str, Any]:
    shards, name = item["shards"], item["task"]
    if not isinstance(shards, list) or not all(isinstance(s, dict) and "shard" in s for s in shards):
        raise item.error("shards", "expected a list of objects with a 'shard'")
    readers = {task.name: task.from_lic for task in tasks.built_in().values() if task.from_lic}
    if str(name) not in readers:
        raise item.error("task", f"{name!r} is no task of LiC; those are {', '.join(readers)}")
    fields = {"id": item["task_id"], "task": name, "shards": [s["shard"] for s in shards]}
    system, full, answer = readers[name](item)
    return fields | {"system": system, "full": full, "answer": answer, "source": "lost in conversation"}


def _example(item: Record) -> Example:
    for field in ("id", "task", "full", "system", "source"):
        if field not in _OPTIONAL or not isinstance(item[field], str):
            item.text(field)  # a complaint where it is none
    name, shards, answer = item["task"], item["shards"], item["answer"]
    task = tasks.find(name)
    if not isinstance(shards, list) or not shards:
        raise item.error("shards", "expected a non-empty list of texts")
    for number, shard in enumerate(shards, 1):
        # LiC's summaries begin with an empty shard; they are read as they are, and nobody plays them.
        if not isinstance(shard, str) or not (shard.strip() or (task and not task.judge)):
            problem = f"shard {number}: expected a non-empty text, found {json.dumps(shard)[:60]}"
            raise UserError(f"{item.where}, field 'shards', {problem}")
    if task is None:
        raise item.error("task", tasks.not_scored(name))
    if not isinstance(answer, dict):
        raise item.error("answer", f"expected an object, found {type(answer).__name__}")
    if missing := task.missing(answer):
        raise item.error("answer", f"a {name} answer needs {missing}")
    return Example(**{**item, "shards": tuple(shards)})

"""Read data sets from files, the hub, generated worlds and Python objects. Every error names the file, the
line (or item) and the field.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from smopd.data import everyday, pocket_world
from smopd.data.example import Example
from smopd.errors import UserError
from smopd.files import LONE_SURROGATE, decode, json_problem, read_bytes
from smopd.verify import tasks
from smopd.verify.task import Record

_FIELDS = tuple(Example.__dataclass_fields__)
_OPTIONAL = ("system", "source")
LONGEST = 1_000_000  # characters of a field, more than the context of any model
DEEPEST = 64  # levels of lists and objects
MOST = 1_000_000  # examples of a generated world
FIELD = "value"  # key under which a plain answer is stored
COLUMNS = ("id", "task", "system", "shards", "messages", "full", "answer", "source")
_WORLD = re.compile(r"\w+(?:@([a-z+]+))?:(train|eval)(?::(?:(\d{1,9})-)?(\d{1,9}))?")
_HUB = re.compile(r"hf:(?P<path>[^@:]+)(?:@(?P<config>[^:]+))?(?::(?P<split>[\w.-]+))?")


def generated(name: str) -> bool:
    """Whether a name means a built-in world, which is no file and the same on every machine."""
    return re.match(r"pocket:|everyday[@:]", name) is not None


def load_examples(path: str | Path, limit: int | None = None) -> list[Example]:
    """Read a data set: smopd JSONL, LiC's JSON array, `hf:NAME[@CONFIG][:SPLIT]`, or a generated world.

    `pocket:train` and `pocket:eval` may end in a size (`pocket:eval:100`) or a range (`pocket:eval:401-800`);
    so may the everyday world, with families and levels as in `everyday@shopping+bill+hard:eval:1-100`.
    """
    name = str(path)
    if generated(name):
        examples = _generate(name)
    else:
        examples = [parse_item(item, where) for where, item in items_of(name)]
    if not examples:
        raise UserError(f"{name}: holds no examples")
    refuse_twins(examples, name)
    return examples if limit is None else examples[:limit]


def refuse_twins(examples: list[Example], name: str) -> None:
    seen: dict[str, int] = {}
    for number, example in enumerate(examples, 1):
        if (first := seen.setdefault(example.id, number)) != number:
            both = f"example {number} and example {first}"
            raise UserError(f"{name}: {both} have the same id {example.id!r}; ids must differ")


def scorable(examples: list[Example], name: str) -> list[Example]:
    """Return the examples; raise a UserError if one's task has no verifier."""
    scored = tasks.scored()
    if bad := next((example for example in examples if example.task not in scored), None):
        raise UserError(f"{name}: {bad.id}: task {tasks.not_scored(bad.task)}")
    return examples


def _generate(name: str) -> list[Example]:
    world = everyday if name.startswith("everyday") else pocket_world
    if match := _WORLD.fullmatch(name):
        chosen = match[1].split("+") if match[1] else []
        first, last = int(match[3] or 1), int(match[4] or world.SIZES[match[2]])
        if last > MOST:
            raise UserError(f"{name}: at most {MOST:,} examples of a generated world are read at once")
        if 1 <= first <= last and set(chosen) <= {*everyday.CHOICES}:
            if world is everyday:
                return list(islice(everyday.examples(match[2], chosen), first - 1, last))
            return pocket_world.generate(match[2], last)[first - 1 :]
    raise UserError(f"{name}: {world.NAMING}")


def _hub_rows(name: str) -> Iterator[tuple[str, Any]]:
    """Yield (place, row) of a split on the hub, without empty and unknown columns. An `answer` may be JSON
    text, since a column cannot hold objects of different shapes.
    """
    if (match := _HUB.fullmatch(name)) is None:
        form = "hf:OWNER/NAME, with @CONFIG and :SPLIT if need be"
        raise UserError(f"{name}: a data set of the hub is named {form}")
    try:
        import datasets
    except ImportError:
        needs = "needs the package datasets: pip install 'smopd[hf]'"
        raise UserError(f"{name}: reading data sets of the hub {needs}") from None
    try:
        table = datasets.load_dataset(match["path"], match["config"], split=match["split"] or "train")
    except Exception as error:  # a loader may raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{name}: cannot be loaded: {lines[0][:300]}") from None
    for number, row in enumerate(table, 1):
        where, item = f"{name}, row {number}", without_empty(row)
        if "task_id" not in item:
            item = {key: value for key, value in item.items() if key in _FIELDS}
            if isinstance(answer := item.get("answer"), str):
                answer = _json(answer, f"{where}, field 'answer'")
                item = answer if isinstance(answer, UserError) else item | {"answer": answer}
        yield where, item


def without_empty(value: Any) -> Any:
    """Drop the keys of dicts whose value is None, at any depth."""
    if isinstance(value, dict):
        return {key: without_empty(inner) for key, inner in value.items() if inner is not None}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


def items_of(name: str) -> Iterator[tuple[str, Any]]:
    """Yield (place, item) for every line, item or row of a data set; invalid JSON comes as a UserError."""
    return _hub_rows(name) if name.startswith("hf:") else file_items(Path(name))


def file_items(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, item) for every JSONL line or JSON array item, of a .gz file too."""
    data = read_bytes(path, kind="data file")
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path}: not a whole gzip file: {error}") from None
    text = decode(data, str(path))
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
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}" if array else where
        return UserError(f"{place}: not valid JSON: {error.msg} (column {error.colno})")
    except (ValueError, RecursionError) as error:
        problem = str(error) if isinstance(error, UserError) else json_problem(error)
        return UserError(f"{where}: not valid JSON: {problem}")


def _refuse_constant(name: str) -> Any:
    """Refuse NaN and infinities, which Python's JSON parser accepts."""
    raise UserError(f"{name} is no number")


def as_record(item: Any, where: str) -> Record:
    """Check that an item is a JSON object with valid Unicode that is not too long or deep to play."""
    if isinstance(item, UserError):
        raise item
    if not isinstance(item, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(item).__name__}")
    record = Record(item, where)
    for field, value in [("", [*item]), *item.items()]:
        if (characters := _count_characters(value, record, field)) > LONGEST:
            raise record.error(field, f"{characters:,} characters; at most {LONGEST:,} can be played")
    return record


def _count_characters(value: Any, record: Record, field: str, depth: int = 0) -> int:
    if depth > DEEPEST:
        raise record.error(field, f"nested too deeply; at most {DEEPEST} levels")
    if isinstance(value, str):
        if not value.isascii() and (lone := LONE_SURROGATE.search(value)):
            half = f"half a character (\\u{ord(lone[0]):04x} without its other half)"
            raise record.error(field, f"{half}; write the character itself, or both halves")
        return len(value)
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    inner = inner if isinstance(inner, list | tuple) else ()
    return sum(_count_characters(one, record, field, depth + 1) for one in inner)


def parse_item(item: Any, where: str) -> Example:
    """Make an example from smopd's or LiC's JSON; `where` is its place in error messages."""
    record = as_record(item, where)
    if "task_id" in item:
        record = Record(_lic_fields(record), where)
    record = Record(dict.fromkeys(_OPTIONAL, "") | record, where)
    for field in _FIELDS:
        record[field]  # raises if it is missing
    if unknown := sorted(set(record) - set(_FIELDS)):
        raise record.error(unknown[0], f"unknown; an example has {', '.join(_FIELDS)}")
    for field in ("id", "task", "full", *_OPTIONAL):
        if field not in _OPTIONAL or not isinstance(record[field], str):
            record.text(field)  # raises if it is not a text
    name, shards, answer = record["task"], record["shards"], record["answer"]
    task = tasks.find(name)
    if not isinstance(shards, list | tuple) or not shards:
        raise record.error("shards", "expected a non-empty list of texts")
    for number, shard in enumerate(shards, 1):
        # LiC's summaries begin with an empty shard; they are read but never played.
        if not isinstance(shard, str) or not (shard.strip() or (task and not task.judge)):
            problem = f"shard {number}: expected a non-empty text, found {json.dumps(shard)[:60]}"
            raise UserError(f"{where}, field 'shards', {problem}")
    if task is None:
        raise record.error("task", tasks.not_scored(name))
    if not isinstance(answer, dict):
        raise record.error("answer", f"expected an object, found {type(answer).__name__}")
    if missing := task.missing(answer):
        raise record.error("answer", f"a {name} answer needs {missing}")
    return Example(**{**record, "shards": tuple(shards)})


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


# --- Python objects: dicts or `Example`s, a dict of columns, a `datasets.Dataset`, a DataFrame
#
# docs/python.md describes the columns. A dict with an unknown key is refused; unknown columns and empty cells
# of a table are left out. A plain answer is stored as {"value": ...}; a text that is a JSON object is parsed,
# since a column of a table cannot hold objects of different shapes.
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

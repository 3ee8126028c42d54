"""One task in two paired views, and the reader of files of them.

`load_examples` takes our JSONL, LiC's JSON arrays as they are, `hf:NAME` for the hub, and `pocket:train` /
`pocket:eval` for the generated pocket world. Every complaint names the file, the line (or item) and the
field.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smopd.data import lic
from smopd.data.hub import hub_rows
from smopd.data.tasks import TASKS as TASKS
from smopd.data.tasks import UNSCORED as UNSCORED
from smopd.data.tasks import missing, scored
from smopd.errors import UserError


@dataclass(frozen=True)
class Example:
    """A task as FULL (one message) and as SHARDED (user turns); `answer` holds what the task's verifier
    needs.
    """

    id: str
    task: str
    system: str
    shards: tuple[str, ...]
    full: str
    answer: Mapping[str, Any]
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """The JSON object of one line of our JSONL."""
        return {**asdict(self), "shards": list(self.shards), "answer": dict(self.answer)}


_FIELDS = frozenset(Example.__dataclass_fields__)


def load_examples(path: str | Path, limit: int | None = None) -> list[Example]:
    """Read a data set: JSONL of ours, LiC's JSON array, `hf:NAME[@CONFIG][:SPLIT]`, or the pocket world.

    `pocket:train` and `pocket:eval` may end in a size (`pocket:eval:100`) or a range (`pocket:eval:401-800`).
    """
    name = str(path)
    if name.startswith("pocket:"):
        examples = _pocket(name)
    else:
        examples = _examples(
            name, hub_rows(name, _FIELDS) if name.startswith("hf:") else file_items(Path(name))
        )
    seen: dict[str, int] = {}
    for number, example in enumerate(examples, 1):
        if example.id in seen:
            raise UserError(
                f"{name}: example {number} and example {seen[example.id]} have the same id {example.id!r}; ids must differ"
            )
        seen[example.id] = number
    return examples if limit is None else examples[:limit]


def scorable(examples: list[Example], name: str) -> list[Example]:
    """The same examples; a UserError if one is of a task without a verifier."""
    other = next((e for e in examples if e.task not in scored()), None)
    if other:
        raise UserError(
            f"{name}: {other.id}: task {other.task!r} cannot be scored; the tasks that can are {', '.join(scored())}"
        )
    return examples


def save_examples(path: str | Path, examples: list[Example]) -> None:
    """Write our JSONL."""
    Path(path).write_text(
        "".join(json.dumps(e.to_json(), ensure_ascii=False) + "\n" for e in examples), encoding="utf-8"
    )


def _pocket(name: str) -> list[Example]:
    from smopd.data.pocket_world import SIZES, generate

    found = re.fullmatch(r"pocket:(\w+)(?::(?:(\d+)-)?(\d+))?", name)
    split = next((s for s in SIZES if found and s == found[1]), None)
    if found is None or split is None:
        first, last = 0, 0
    else:
        first, last = int(found[2] or 1), int(found[3] or SIZES[split])
    if split is None or not 1 <= first <= last:
        raise UserError(
            f"{name}: the pocket world is named pocket:train or pocket:eval, with an optional size as in pocket:eval:100, "
            "or the first and the last of them as in pocket:eval:401-800"
        )
    return generate(split, last)[first - 1 :]


def _examples(name: str, items: Iterable[tuple[str, Any]]) -> list[Example]:
    examples = [parse_item(item, where) for where, item in items]
    if not examples:
        raise UserError(f"{name}: holds no examples")
    return examples


def file_items(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, item) for every line of JSONL or item of a JSON array; where there is no JSON the item is the
    complaint.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such data file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    if text.lstrip().startswith("["):
        items = _json(text, f"{path}", array=True)
        whole = isinstance(items, UserError)  # then there are no items to name
        yield from (
            [(str(path), items)]
            if whole
            else ((f"{path}, item {n}", item) for n, item in enumerate(items, 1))
        )
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", _json(line, f"{path}, line {number}")


def _json(text: str, where: str, array: bool = False) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}: " if array else f"{where}: "
        return UserError(f"{place}not valid JSON: {error.msg} (column {error.colno})")
    except RecursionError:
        return UserError(f"{where}: nested too deeply")


def parse_item(item: Any, where: str) -> Example:
    """One example from its JSON, ours or LiC's; `where` is how a complaint names its place."""
    if isinstance(item, UserError):
        raise item
    if not isinstance(item, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(item).__name__}")
    return _from_lic(item, where) if "task_id" in item else _from_ours(item, where)


def _from_ours(item: dict[str, Any], where: str) -> Example:
    for field in ("id", "task", "shards", "full", "answer"):
        if field not in item:
            raise UserError(f"{where}, field '{field}': missing")
    unknown = sorted(set(item) - set(Example.__dataclass_fields__))
    if unknown:
        raise UserError(
            f"{where}, field '{unknown[0]}': unknown; an example has {', '.join(Example.__dataclass_fields__)}"
        )
    return _example(where, item["id"], item["task"], item.get("system", ""), item["shards"], item["full"], item["answer"],
                    item.get("source", ""))  # fmt: skip


def _from_lic(item: dict[str, Any], where: str) -> Example:
    id, task, shards, (system, full, answer) = lic.fields_of(item, where)
    return _example(where, id, task, system, shards, full, answer, "lost in conversation")


def _example(
    where: str, id: Any, task: Any, system: Any, shards: Any, full: Any, answer: Any, source: Any
) -> Example:
    for field, value in (("id", id), ("task", task), ("full", full), ("system", system), ("source", source)):
        if not isinstance(value, str) or (field in ("id", "task", "full") and not value.strip()):
            raise UserError(
                f"{where}, field '{field}': expected a non-empty text, found {json.dumps(value)[:60]}"
            )
    if not isinstance(shards, list) or not shards:
        raise UserError(f"{where}, field 'shards': expected a non-empty list of texts")
    for number, shard in enumerate(shards, 1):
        # LiC's summaries begin with an empty shard; they are read as they are, and nobody plays them.
        if not isinstance(shard, str) or not (shard.strip() or task in UNSCORED):
            raise UserError(
                f"{where}, field 'shards', shard {number}: expected a non-empty text, found {json.dumps(shard)[:60]}"
            )
    if task not in (*scored(), *UNSCORED):
        raise UserError(
            f"{where}, field 'task': {task!r} cannot be scored; the tasks that can are {', '.join(scored())}"
        )
    if not isinstance(answer, dict):
        raise UserError(f"{where}, field 'answer': expected an object, found {type(answer).__name__}")
    if lacks := missing(task, answer):
        raise UserError(f"{where}, field 'answer': a {task} answer needs {lacks}")
    return Example(id, task, system, tuple(shards), full, answer, source)

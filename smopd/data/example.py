"""One task in two paired views, and the reader of files of them.

`load_examples` takes our JSONL, LiC's JSON arrays as they are, and `pocket:train` / `pocket:eval` for the generated pocket
world. Every complaint names the file, the line (or item) and the field.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smopd.errors import UserError

TASKS = ("math", "actions")  # the tasks `smopd.evaluation.verify` can score
MATH_SYSTEM = (
    "You solve math problems. The user may reveal the problem over several messages. Work step by step from everything the "
    "user has said, and finish with a line of the form: The answer is <number>."
)
ACTIONS_SYSTEM = (
    "You call functions. The user may reveal the request over several messages. Reply with nothing but a Python list of calls "
    "with named arguments, such as [f(a=1), g(b=\"x\")], using only these functions:\n{functions}"
)  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A task as FULL (one message) and as SHARDED (user turns); `answer` holds what the task's verifier needs."""

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


def load_examples(path: str | Path, limit: int | None = None) -> list[Example]:
    """Read a data set: JSONL of ours, LiC's JSON array, or `pocket:train[:N]` / `pocket:eval[:N]`."""
    name = str(path)
    examples = _pocket(name) if name.startswith("pocket:") else _from_file(Path(name))
    seen: dict[str, int] = {}
    for number, example in enumerate(examples, 1):
        if example.id in seen:
            raise UserError(
                f"{name}: example {number} and example {seen[example.id]} have the same id {example.id!r}; ids must differ"
            )
        seen[example.id] = number
    return examples if limit is None else examples[:limit]


def save_examples(path: str | Path, examples: list[Example]) -> None:
    """Write our JSONL."""
    Path(path).write_text("".join(json.dumps(e.to_json(), ensure_ascii=False) + "\n" for e in examples), encoding="utf-8")


def _pocket(name: str) -> list[Example]:
    from smopd.data.pocket_world import SIZES, generate

    _, wanted, *rest = name.split(":")
    split = next((s for s in SIZES if s == wanted), None)
    if split is None or len(rest) > 1 or (rest and not (rest[0].isdigit() and int(rest[0]))):
        raise UserError(
            f"{name}: the pocket world is named pocket:train or pocket:eval, with an optional size as in pocket:eval:100"
        )
    return generate(split, int(rest[0]) if rest else SIZES[split])


def _from_file(path: Path) -> list[Example]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such data file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    items = _array(path, text) if text.lstrip().startswith("[") else _lines(path, text)
    examples = [_parse(item, where) for where, item in items]
    if not examples:
        raise UserError(f"{path}: holds no examples")
    return examples


def _array(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from None
    for number, item in enumerate(items, 1):
        yield f"{path}, item {number}", item


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{path}, line {number}: not valid JSON: {error.msg} (column {error.colno})") from None


def _parse(item: Any, where: str) -> Example:
    if not isinstance(item, dict):
        raise UserError(f"{where}: expected a JSON object, found {type(item).__name__}")
    return _from_lic(item, where) if "task_id" in item else _from_ours(item, where)


def _from_ours(item: dict[str, Any], where: str) -> Example:
    for field in ("id", "task", "shards", "full", "answer"):
        if field not in item:
            raise UserError(f"{where}, field '{field}': missing")
    unknown = sorted(set(item) - set(Example.__dataclass_fields__))
    if unknown:
        raise UserError(f"{where}, field '{unknown[0]}': unknown; an example has {', '.join(Example.__dataclass_fields__)}")
    return _example(where, item["id"], item["task"], item.get("system", ""), item["shards"], item["full"], item["answer"],
                    item.get("source", ""))  # fmt: skip


def _from_lic(item: dict[str, Any], where: str) -> Example:
    def need(field: str) -> Any:
        if field not in item:
            raise UserError(f"{where}, field '{field}': missing")
        return item[field]

    shards = need("shards")
    if not isinstance(shards, list) or not all(isinstance(s, dict) and "shard" in s for s in shards):
        raise UserError(f"{where}, field 'shards': expected a list of objects with a 'shard'")
    task = need("task")
    if task == "math":
        system, full, answer = MATH_SYSTEM, need("question"), {"value": _after_hashes(need("answer"), where)}
    elif task == "actions":
        functions = need("function")
        system = ACTIONS_SYSTEM.format(functions="\n".join(json.dumps(f) for f in functions))
        question = need("fully_specified_question")
        try:
            full = question[0][0]["content"]
        except (IndexError, KeyError, TypeError):
            raise UserError(f"{where}, field 'fully_specified_question': expected [[{{'content': ...}}]]") from None
        answer = {"calls": need("reference_answer"), "functions": functions}
    else:
        raise UserError(f"{where}, field 'task': {task!r} cannot be scored; the tasks that can are {', '.join(TASKS)}")
    return _example(where, need("task_id"), task, system, [s["shard"] for s in shards], full, answer, "lost in conversation")


def _after_hashes(answer: Any, where: str) -> str:
    if not isinstance(answer, str) or "####" not in answer:
        raise UserError(f"{where}, field 'answer': expected a text that ends in '#### <number>'")
    return answer.rsplit("####", 1)[1].strip()


def _example(where: str, id: Any, task: Any, system: Any, shards: Any, full: Any, answer: Any, source: Any) -> Example:
    for field, value in (("id", id), ("task", task), ("full", full), ("system", system), ("source", source)):
        if not isinstance(value, str) or (field in ("id", "task", "full") and not value.strip()):
            raise UserError(f"{where}, field '{field}': expected a non-empty text, found {json.dumps(value)[:60]}")
    if not isinstance(shards, list) or not shards:
        raise UserError(f"{where}, field 'shards': expected a non-empty list of texts")
    for number, shard in enumerate(shards, 1):
        if not isinstance(shard, str) or not shard.strip():
            raise UserError(f"{where}, field 'shards', shard {number}: expected a non-empty text, found {json.dumps(shard)[:60]}")
    if task not in TASKS:
        raise UserError(f"{where}, field 'task': {task!r} cannot be scored; the tasks that can are {', '.join(TASKS)}")
    if not isinstance(answer, dict):
        raise UserError(f"{where}, field 'answer': expected an object, found {type(answer).__name__}")
    needed = {"math": "value", "actions": "calls"}[task]
    if needed not in answer:
        raise UserError(f"{where}, field 'answer': a {task} answer needs '{needed}'")
    return Example(id, task, system, tuple(shards), full, answer, source)

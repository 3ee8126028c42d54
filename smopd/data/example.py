"""`Example`: one task in two paired views."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smopd.files import jsonl


@dataclass(frozen=True)
class Example:
    """A task as FULL (one message) and as SHARDED (user turns); `answer` is what its verifier needs."""

    id: str
    task: str
    system: str
    shards: tuple[str, ...]
    full: str
    answer: Mapping[str, Any]
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shards": list(self.shards), "answer": dict(self.answer)}


def group_by_task(examples: Sequence[Example]) -> dict[str, list[Example]]:
    groups: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        groups[example.task].append(example)
    return groups


def save_examples(path: str | Path, examples: Sequence[Example]) -> None:
    Path(path).write_text(jsonl(e.to_json() for e in examples), encoding="utf-8")

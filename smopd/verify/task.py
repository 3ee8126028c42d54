"""What a task declares about itself: its answers, its prompt, how a reply is judged, how data of it are read.

The rest of the package asks the declaration and never compares a task's name.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from smopd.errors import UserError
from smopd.verify.verdict import Verdict
from smopd.verify.workers import Job

Answer = Mapping[str, Any]


class Judged(Protocol):
    """What a verdict needs of an example."""

    @property
    def id(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def answer(self) -> Answer: ...
    @property
    def full(self) -> str: ...


# A verdict where reading the reply is enough; else the job for a worker process, or the call, that gives it.
Judge = Callable[[Judged, str], Verdict | Job | Callable[[], Verdict]]
Replies = Callable[[Answer], Sequence[str]]


def texts_of(answer: Answer) -> list[str]:
    """What an answer says, as texts: its values one by one, together, and the whole of it as JSON."""
    values = [value if isinstance(value, str) else json.dumps(value) for value in answer.values()]
    return [*dict.fromkeys([*values, " ".join(values), json.dumps(dict(answer))])]


class Record(dict[str, Any]):
    """One JSON object of a file; a field that is missing is a UserError that names the place."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        super().__init__(fields)
        self.where = where

    def __missing__(self, field: str) -> Any:
        raise self.error(field, "missing")

    def text(self, field: str) -> str:
        """A field that must be a text with something in it."""
        if not isinstance(value := self[field], str) or not value.strip():
            raise self.error(field, f"expected a non-empty text, found {json.dumps(value)[:60]}")
        return value

    def error(self, field: str, problem: str) -> UserError:
        return UserError(f"{self.where}, field '{field}': {problem}")


@dataclass(frozen=True)
class Placeholder:
    """A part of the system prompt that differs from example to example."""

    name: str  # as it stands in a prompt, with its braces
    meaning: str
    text: Callable[[Answer], str]

    def fill(self, prompt: str, answer: Answer) -> str:
        return prompt.replace(self.name, self.text(answer))


@dataclass(frozen=True)
class Task:
    """One kind of example. `judge` None: examples can be read, not scored."""

    name: str
    fields: tuple[str, ...] = ()  # that an answer must have
    one_field: bool = False  # one of them is enough
    judge: Judge | None = None
    rules: tuple[str, ...] = ()  # what a user can have judged by, the default first; the setting rules.NAME
    rules_meaning: str = ""
    require: Callable[[], object] = lambda: None  # a UserError where this machine cannot judge replies
    system: str = ""  # the system prompt
    placeholder: Placeholder | None = None
    from_lic: Callable[[Record], tuple[str, str, dict[str, Any]]] | None = None  # (system, full, answer)
    plain_answer: Callable[[Any], Any] = lambda value: value  # a user's bare answer, checked: a ValueError
    answer_form: str = ""  # what an answer looks like, for a model that is to copy it from a reply
    reference_replies: Replies = texts_of  # replies of which a sound verifier takes one for right
    # What the reply to a user turn (from 0) should say, as an answer of the same form; None: not known.
    turn_answer: Callable[[Answer, int], Answer | None] = lambda answer, turn: None
    # What is wrong with an answer, where that is cheap to say, and how many of a file are looked at (0: all).
    reference_problem: Callable[[Answer], str | None] = lambda answer: None
    references_checked: int = 0
    shards_repeat: bool = True  # whether shards should hold every number, name and identifier of the request

    def missing(self, answer: Answer) -> str:
        """What an answer lacks, in words; empty where it lacks nothing."""
        absent = [f"'{name}'" for name in self.fields if name not in answer]
        if self.one_field:
            return " or ".join(absent) if len(absent) == len(self.fields) else ""
        return absent[0] if absent else ""

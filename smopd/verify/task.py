"""What a task declares: its answers and prompt, how a reply is judged, how its data are read.

The rest of the package asks this declaration and never compares a task's name.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from smopd.errors import UserError
from smopd.verify.verdict import Verdict
from smopd.verify.workers import Job

Answer = Mapping[str, Any]
UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)  # what answers of the wrong form raise


class Judged(Protocol):
    """What a verifier needs of an example."""

    @property
    def id(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def answer(self) -> Answer: ...
    @property
    def full(self) -> str: ...


# Returns a verdict if reading the reply is enough, else a worker's job or a call that gives the verdict.
Judge = Callable[[Judged, str], Verdict | Job | Callable[[], Verdict]]


def texts_of(answer: Answer) -> list[str]:
    """Return the values of an answer one by one, then joined, then the whole answer as JSON."""
    values = [value if isinstance(value, str) else json.dumps(value) for value in answer.values()]
    return [*dict.fromkeys([*values, " ".join(values), json.dumps(dict(answer))])]


class Record(dict[str, Any]):
    """One JSON object of a file; a missing field raises a UserError that names the place."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        super().__init__(fields)
        self.where = where

    def __missing__(self, field: str) -> Any:
        raise self.error(field, "missing")

    def text(self, field: str) -> str:
        if not isinstance(value := self[field], str) or not value.strip():
            raise self.error(field, f"expected a non-empty text, found {json.dumps(value)[:60]}")
        return value

    def error(self, field: str, problem: str) -> UserError:
        return UserError(f"{self.where}, field '{field}': {problem}")


@dataclass(frozen=True)
class Placeholder:
    """A part of the system prompt that differs from example to example."""

    name: str  # as in a prompt, with its braces
    meaning: str
    text: Callable[[Answer], str]

    def fill(self, prompt: str, answer: Answer) -> str:
        return prompt.replace(self.name, self.text(answer))


@dataclass(frozen=True)
class Task:
    """One kind of example; without `judge`, examples can be read but not scored."""

    name: str
    fields: tuple[str, ...] = ()  # fields that an answer must have
    one_field: bool = False  # one of them is enough
    judge: Judge | None = None
    rules: tuple[str, ...] = ()  # choices of the setting rules.NAME, the default first
    rules_meaning: str = ""
    require: Callable[[], object] = lambda: None  # raises a UserError if this machine cannot judge replies
    system: str = ""  # the system prompt
    placeholder: Placeholder | None = None
    from_lic: Callable[[Record], tuple[str, str, dict[str, Any]]] | None = None  # (system, full, answer)
    plain_answer: Callable[[Any], Any] = lambda value: value  # checks a bare answer, or raises a ValueError
    answer_form: str = ""  # describes an answer to a model that copies it from a reply
    reference_replies: Callable[[Answer], Sequence[str]] = texts_of  # a sound verifier accepts one of these
    # The right answer after a user turn (counted from 0), in the same form; None if not known.
    turn_answer: Callable[[Answer, int], Answer | None] = lambda answer, turn: None
    # A cheap check that returns a problem or None, and how many answers of a file it checks (0: all).
    reference_problem: Callable[[Answer], str | None] = lambda answer: None
    references_checked: int = 0
    shards_repeat: bool = True  # whether shards should hold every number, name and identifier of the request

    def problem(self, answer: Answer) -> str | None:
        """Return what is wrong with a reference answer, which may be of any form."""
        try:
            return self.reference_problem(answer)
        except UNREADABLE as error:
            return f"the answer is not of the task's form: {type(error).__name__}: {error}"

    def missing(self, answer: Answer) -> str:
        absent = [f"'{name}'" for name in self.fields if name not in answer]
        fatal = len(self.fields) if self.one_field else 1
        return " or ".join(absent[:fatal]) if len(absent) >= fatal else ""

"""The tasks an example can have, and what each one's answer must hold. Verifiers of one's own add theirs
(`register`).

It leaves out how a reply is scored: `smopd.verify.verifiers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

TASKS = ("math", "actions", "database", "code")  # the tasks `smopd.evaluation.verify` scores by itself
UNSCORED = ("data2text", "summary")  # LiC's other two: read, not scored
_ANSWERS = {
    "math": ("value",),
    "actions": ("calls",),
    "database": ("reference_sql", "schema_sql"),
    "code": ("test", "test_list", "public_test_cases"),  # one of them
}
_registered: dict[str, tuple[str, ...]] = {}


def scored() -> tuple[str, ...]:
    """Every task that can be scored now: the built-in ones, then the user's."""
    return (*TASKS, *_registered)


def register(task: str, fields: Sequence[str]) -> None:
    """Make a task known whose answers hold these fields; a task already registered is replaced."""
    if task in (*TASKS, *UNSCORED):
        raise ValueError(f"{task!r} is a task of ours")
    _registered[task] = tuple(fields)


def forget(task: str) -> None:
    """Take a registered task back."""
    _registered.pop(task, None)


def missing(task: str, answer: Mapping[str, Any]) -> str:
    """What an answer to a task lacks, in words; an empty text where it lacks nothing."""
    needed = _ANSWERS.get(task) or _registered.get(task, ())
    absent = [f"'{name}'" for name in needed if name not in answer]
    if task == "code":  # one of them is enough
        return " or ".join(absent) if len(absent) == len(needed) else ""
    return absent[0] if absent else ""

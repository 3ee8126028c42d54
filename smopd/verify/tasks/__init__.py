"""The tasks that an example can have: built-in ones, in modules of this package, and the user's own."""

import functools
from collections.abc import Mapping
from importlib import import_module

from smopd.verify.task import Answer, Task

MODULES = ("math", "actions", "database", "code", "unscored", "everyday")  # each defines TASKS
_registered: dict[str, Task] = {}  # the user's own
_rules: dict[str, str] = {}  # by task; any other uses its default


@functools.cache
def built_in() -> dict[str, Task]:
    modules = (import_module(f"{__name__}.{name}") for name in MODULES)
    return {task.name: task for module in modules for task in module.TASKS}


def find(name: str) -> Task | None:
    return built_in().get(name) or _registered.get(name)


def use_rules(rules: Mapping[str, str]) -> None:
    _rules.clear()
    _rules.update(rules)


def rule(name: str) -> str:
    """Return the rule by which replies to a task are judged; empty if the task has no choice."""
    task = find(name)
    return _rules.get(name) or (task.rules[0] if task and task.rules else "")


def scored() -> tuple[str, ...]:
    return tuple(name for name, task in (built_in() | _registered).items() if task.judge)


def not_scored(name: str) -> str:
    return f"{name!r} cannot be scored; the tasks that can are {', '.join(scored())}"


def fill(prompt: str, answer: Answer) -> str:
    for task in built_in().values():
        prompt = task.placeholder.fill(prompt, answer) if task.placeholder else prompt
    return prompt


def register(task: Task) -> None:
    if task.name in built_in():
        raise ValueError(f"{task.name!r} is a built-in task")
    _registered[task.name] = task


def forget(name: str) -> None:
    _registered.pop(name, None)

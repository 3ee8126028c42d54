"""The tables of the settings that tasks declare: [prompts], a system prompt for every built-in task that can
be scored, and [rules], by which rule replies are judged where a task has several.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from smopd.settings import Section
from smopd.verify import tasks
from smopd.verify.task import Task


class Prompts(Section):
    """System prompts in place of those the examples carry; empty = theirs."""


class Rules(Section):
    """By which rule replies are judged; named in every result."""


def _prompt(task: Task) -> Any:
    place = task.placeholder
    filled = f"; {place.name} stands for {place.meaning}" if place else ""
    return Annotated[str, Field(description=f"of {task.name} examples{filled}")], ""


def _rule(task: Task) -> Any:
    return Annotated[Literal[task.rules], Field(description=task.rules_meaning)], task.rules[0]


if not TYPE_CHECKING:
    _SCORED = {name: task for name, task in tasks.built_in().items() if task.judge}
    _FIELDS = {name: _prompt(task) for name, task in _SCORED.items()}
    Prompts = create_model("Prompts", __base__=Prompts, __doc__=Prompts.__doc__, **_FIELDS)
    _FIELDS = {name: _rule(task) for name, task in _SCORED.items() if task.rules}
    Rules = create_model("Rules", __base__=Rules, __doc__=Rules.__doc__, **_FIELDS)

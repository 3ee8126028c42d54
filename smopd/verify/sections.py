"""Settings that the built-in tasks declare: system prompts in [prompts], rules of judging in [rules]."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from smopd.settings import Section
from smopd.verify import tasks
from smopd.verify.task import Task


class Prompts(Section):
    """System prompts that replace those of the examples; empty keeps the examples' own."""


class Rules(Section):
    """The rules by which replies are judged; every result names them."""


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

"""The table [prompts] of the settings: a system prompt for every built-in task that can be scored."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model

from smopd.settings import Section
from smopd.verify import tasks
from smopd.verify.task import Task


class Prompts(Section):
    """System prompts in place of those the examples carry; empty = theirs."""


def _field(task: Task) -> Any:
    place = task.placeholder
    filled = f"; {place.name} stands for {place.meaning}" if place else ""
    return Annotated[str, Field(description=f"of {task.name} examples{filled}")], ""


if not TYPE_CHECKING:
    _FIELDS = {name: _field(task) for name, task in tasks.built_in().items() if task.judge}
    Prompts = create_model("Prompts", __base__=Prompts, __doc__=Prompts.__doc__, **_FIELDS)

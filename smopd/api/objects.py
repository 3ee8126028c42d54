"""A verifier and a method that were passed as Python objects, as the text of a file.

The file is what a run executes and keeps: so it goes on from the command line too, and a change is noticed.
An object without a text (source.py says when) is used as it is, in this process; then the file says so, and
any other process stops there with that message.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from smopd.api.source import NoSourceError, Source
from smopd.data.columns import FIELD
from smopd.errors import UserError
from smopd.methods import Method
from smopd.verify import own, tasks

Function = Callable[..., Any]
# Said in the file of a verifier, and read there when a run is evaluated or goes on.
EVERY, PLAIN = "It judges every example.", "It gets plain values as answers."


@dataclass(frozen=True)
class Written:
    """The text of a file; `reason` says why it is only a note about an object that has none."""

    text: str
    reason: str = ""


@dataclass(frozen=True)
class Judges:
    """Verifier functions: the tasks they judge, and the fields their answers have."""

    functions: dict[str, Function]  # by task, as they are called: with the example's answer object
    fields: tuple[str, ...]
    every: bool  # one function without a task of its own, which judges every example
    file: Written = field(default_factory=lambda: Written(""))

    @property
    def task(self) -> str:
        """The task of examples that name none; empty where there are several."""
        return next(iter(self.functions)) if len(self.functions) == 1 else ""


def judges_of(verifier: Function | Sequence[Function], plain: bool) -> Judges:
    """What `verifier=` means; `plain`: the examples' answers are plain values, not objects."""
    given: list[Any] = list(verifier) if isinstance(verifier, list | tuple) else [verifier]
    for function in given:
        if not callable(function):
            found = type(function).__name__
            expected = "expected a function of (answer, reply) that returns True, False or None"
            raise UserError(f"verifier: {expected}, found {found}")
    marks = {mark["task"]: mark for f in given if (mark := own.marks(f))}
    if len(given) > 1 and len(marks) < len(given):
        raise UserError("verifier: of several functions each needs its task: mark them @smopd.verifier(TASK)")
    if marks:
        functions = dict(zip(marks, given, strict=True))
        wanted = marks[next(iter(marks))]["answer"] if len(marks) == 1 else ()
        return Judges(functions, tuple(wanted), False, _verifier_file(functions, marks, "", ""))
    (function,) = given
    task = re.sub(r"[^\w.-]+", "", getattr(function, "__name__", "")).replace("lambda", "") or "given"
    task = f"own-{task}" if task in tasks.built_in() else task
    fields = (FIELD,) if plain else ()
    part = f"[{FIELD!r}]" if plain else ""
    facts = f"{EVERY} {PLAIN}" if plain else EVERY
    file = _verifier_file({task: function}, {task: {"task": task, "answer": fields}}, part, facts)

    def judge(answer: dict[str, Any], reply: str) -> Any:
        return function(answer[FIELD] if plain else answer, reply)

    return Judges({task: judge}, fields, True, file)


def _verifier_file(functions: dict[str, Function], marks: dict[str, Any], part: str, facts: str) -> Written:
    source, last = Source(), []
    try:
        names = {task: source.expression(function) for task, function in functions.items()}
        there = own.tasks_in(source.text())
        for number, (task, name) in enumerate(names.items()):
            if task not in there:
                words = ", ".join(f"{k}={v!r}" for k, v in marks[task].items() if k != "task")
                last.append(
                    f"@_verifier({task!r}, {words})\ndef _judge{number}(answer, reply):\n"
                    f"    return {name}(answer{part}, reply)"
                )
        mark = ["from smopd.verify import verifier as _verifier"] if last else []
        text = _headed(source.text("\n\n\n".join([*mark, *last])), "verifier", facts)
        if sorted(own.tasks_in(text)) != sorted(functions):
            raise NoSourceError("its text marks other functions than the one passed")
        return Written(text)
    except NoSourceError as error:
        return _note("verifier", list(functions.values()), str(error), facts)
    except (Exception, SystemExit) as error:
        return _note("verifier", list(functions.values()), f"its text fails alone: {error!r}", facts)


def method_file(method: Method) -> Written:
    source = Source()
    try:
        words = source.expression(method)
        text = _headed(source.text(f"METHODS = [{words}]"), "method")
        _try(text)
        return Written(text)
    except NoSourceError as error:
        return _note("method", [method.name, method.plan], str(error))
    except (Exception, SystemExit) as error:
        return _note("method", [method.name, method.plan], f"its text fails alone: {error!r}")


def _try(text: str) -> None:
    module = ModuleType("smopd_trial")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, "<source>", "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]


def _headed(text: str, what: str, facts: str = "") -> str:
    return (
        _docstring(f"The {what} of this run, as it was passed from Python, with what it refers to.", facts)
        + text
    )


def _docstring(line: str, facts: str) -> str:
    return f'"""{line}\n\n{facts}\n"""\n\n' if facts else f'"""{line}"""\n\n'


def _note(what: str, objects: Sequence[Any], reason: str, facts: str = "") -> Written:
    shown = "; ".join(re.sub(r" at 0x[0-9a-f]+", "", repr(o))[:300] for o in objects)
    said = (
        f"the {what} of this run is a Python object ({shown}) without a text that could be kept: {reason}; "
        f"continue or evaluate the run from Python, and pass it again as {what}="
    )
    head = _docstring(f"No text of the {what} of this run is known.", facts)
    return Written(f"{head}raise RuntimeError({said!r})\n", reason)

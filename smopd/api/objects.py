"""Turn a verifier or a method that was passed as a Python object into the text of a file, which a run keeps
and executes. A function or class is written as `inspect.getsource` gives it, below what it looks up in its
module. An object without such a text is used directly in this process; any other process stops at its file.
"""

import ast
import builtins
import dis
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import smopd
from smopd.data.reading import FIELD
from smopd.errors import UserError
from smopd.methods import Method
from smopd.plugins import file_text_digest
from smopd.verify import custom, tasks

Function = Callable[..., Any]
# Written into the file of a verifier, and read there when a run is evaluated or resumed.
EVERY, PLAIN = "It judges every example.", "It gets plain values as answers."
_INSTALLED = [Path(smopd.__file__).parent.resolve()]
_INSTALLED += [Path(sysconfig.get_path(p)).resolve() for p in ("stdlib", "platstdlib", "purelib", "platlib")]


class Written(NamedTuple):
    """The text of a file; `reason` says why the text is only a note about an object without source."""

    text: str
    reason: str = ""


@dataclass(frozen=True)
class Judges:
    """Verifier functions: the tasks they judge, and the fields their answers have."""

    functions: dict[str, Function]  # by task; called with the example's answer object and the reply
    fields: tuple[str, ...]
    every: bool  # one function without a task of its own, which judges every example
    file: Written

    @property
    def task(self) -> str:
        """The task of examples that name none; empty if there are several."""
        return next(iter(self.functions)) if len(self.functions) == 1 else ""


def judges_of(verifier: Function | Sequence[Function], plain: bool) -> Judges:
    """Interpret `verifier=`; `plain`: the examples' answers are plain values, not objects."""
    verifiers: list[Any] = list(verifier) if isinstance(verifier, list | tuple) else [verifier]
    if odd := [type(function).__name__ for function in verifiers if not callable(function)]:
        expected = "expected a function of (answer, reply) that returns True, False or None"
        raise UserError(f"verifier: {expected}, found {odd[0]}")
    marks = {mark["task"]: mark for f in verifiers if (mark := custom.marks(f))}
    if len(verifiers) > 1 and len(marks) < len(verifiers):
        raise UserError("verifier: of several functions each needs its task: mark them @smopd.verifier(TASK)")
    if marks:
        functions = dict(zip(marks, verifiers, strict=True))
        wanted = marks[next(iter(marks))]["answer"] if len(marks) == 1 else ()
        return Judges(functions, tuple(wanted), False, _verifier_file(functions, marks))
    (function,) = verifiers
    task = re.sub(r"[^\w.-]+", "", getattr(function, "__name__", "")).replace("lambda", "") or "given"
    task = f"own-{task}" if task in tasks.built_in() else task
    fields, part, facts = ((FIELD,), f"[{FIELD!r}]", f"{EVERY} {PLAIN}") if plain else ((), "", EVERY)
    file = _verifier_file({task: function}, {task: {"answer": fields}}, part, facts)

    def judge(answer: dict[str, Any], reply: str) -> Any:
        return function(answer[FIELD] if plain else answer, reply)

    return Judges({task: judge}, fields, True, file)


def _verifier_file(
    functions: dict[str, Function], marks: dict[str, Any], part: str = "", facts: str = ""
) -> Written:
    def compose() -> str:
        source, last = Source(), list[str]()
        names = {task: source.expression(function) for task, function in functions.items()}
        there = custom.tasks_in(source.text())
        for number, (task, name) in enumerate(names.items()):
            if task not in there:
                options = ", ".join(f"{k}={v!r}" for k, v in marks[task].items() if k != "task")
                mark = f"@_verifier({task!r}, {options})\ndef _judge{number}(answer, reply):"
                last.append(f"{mark}\n    return {name}(answer{part}, reply)")
        imported = ["from smopd.verify import verifier as _verifier"] if last else []
        text = source.text("\n\n\n".join([*imported, *last]))
        if sorted(custom.tasks_in(text)) != sorted(functions):
            raise NoSourceError("its text marks other functions than the one passed")
        return text

    return _write("verifier", list(functions.values()), facts, compose)


def method_file(method: Method) -> Written:
    def compose() -> str:
        source = Source()
        text = source.text(f"METHODS = [{source.expression(method)}]")
        module = sys.modules["smopd_trial"] = ModuleType("smopd_trial")
        try:
            exec(compile(text, "<source>", "exec", dont_inherit=True), vars(module))
        finally:
            del sys.modules["smopd_trial"]
        return text

    return _write("method", [method.name, method.plan], "", compose)


def _write(what: str, objects: Sequence[Any], facts: str, compose: Callable[[], str]) -> Written:
    """Put a heading above the text from `compose`; if that fails, write a file that says why."""
    end = f"\n\n{facts}\n" if facts else ""
    try:
        head = f"The {what} of this run, as it was passed from Python, with what it refers to."
        return Written(f'"""{head}{end}"""\n\n{compose()}')
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, NoSourceError) else f"its text fails alone: {error!r}"
    shown = "; ".join(re.sub(r" at 0x[0-9a-f]+", "", repr(o))[:300] for o in objects)
    message = (
        f"the {what} of this run is a Python object ({shown}) without a text that could be kept: {reason}; "
        f"continue or evaluate the run from Python, and pass it again as {what}="
    )
    head = f'"""No text of the {what} of this run is known.{end}"""'
    return Written(f"{head}\n\nraise RuntimeError({message!r})\n", reason)


class NoSourceError(Exception):
    """Raised for an object that source text cannot recreate."""


class Source:
    """A growing file: `expression` returns code for an object and adds what the code needs above it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._imports: list[str] = []
        self._definitions: list[str] = []

    def text(self, last: str = "") -> str:
        return "\n\n\n".join(filter(None, ["\n".join(self._imports), *self._definitions, last])) + "\n"

    def expression(self, value: Any) -> str:
        if isinstance(value, FunctionType | type):
            self._define(value.__name__, value)
            return value.__name__
        if is_dataclass(value):
            args = [f"{f.name}={self.expression(getattr(value, f.name))}" for f in fields(value) if f.init]
            return f"{self.expression(type(value))}({', '.join(args)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.expression(v)}" for k, v in value.items()) + "}"
        if isinstance(value, set) and value:  # in a fixed order
            return "{" + ", ".join(sorted(map(self.expression, value))) + "}"
        if isinstance(value, re.Pattern):
            return f"__import__('re').compile({value.pattern!r}, {value.flags})"
        try:
            if ast.literal_eval(repr(value)) == value:
                return repr(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            pass
        raise NoSourceError(f"an object of the class {type(value).__name__} has no text")

    def _define(self, name: str, value: Any) -> None:
        if name in self._values:
            if self._values[name] is not value:
                raise NoSourceError(f"two different things are named {name}")
            return
        self._values[name] = value
        alias = "" if getattr(value, "__name__", name) == name else f" as {name}"
        if isinstance(value, ModuleType):
            self._imports.append(_import_module(value, alias))
        elif home := _importable_from(value):
            self._imports.append(f"from {home} import {value.__name__}{alias}")
        elif isinstance(value, FunctionType | type) and value.__name__ == name:
            self._definitions.append(self._definition(name, value))
        else:
            self._definitions.append(f"{name} = {self.expression(value)}")

    def _definition(self, name: str, value: Any) -> str:
        """The source of a user's function or class; what it looks up in its module is defined before it."""
        if name == "<lambda>":
            raise NoSourceError("a lambda has no text of its own")
        if getattr(value, "__closure__", None):
            raise NoSourceError(f"{name} uses variables of the function around it")
        try:
            text = textwrap.dedent(inspect.getsource(value)).strip("\n")
            looked_up = set(_find_global_names(compile(text, "<source>", "exec", dont_inherit=True)))
        except (OSError, TypeError, SyntaxError):
            raise NoSourceError(f"the text of {name} is not at hand") from None
        module = getattr(value, "__globals__", None) or vars(sys.modules[value.__module__])
        for other in sorted(looked_up & module.keys() - {name}):
            if not other.startswith("__") and getattr(builtins, other, None) is not module[other]:
                self._define(other, module[other])
        return text


def _find_global_names(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _find_global_names(constant)


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return any(Path(file).resolve().is_relative_to(root) for root in _INSTALLED)


def _import_module(module: ModuleType, alias: str) -> str:
    if module.__name__ == "__main__" or sys.modules.get(module.__name__) is not module:
        raise NoSourceError(f"the module {module.__name__} cannot be imported elsewhere")
    file, text = getattr(module, "__file__", None), f"import {module.__name__}{alias}"
    if _is_installed(module) or not file:
        return text
    return f"{text}  # your own module; its text had the hash {file_text_digest(Path(file))}"


def _importable_from(value: Any) -> str:
    """The installed module from which any process can import a function or class, else empty."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__qualname__", ".")
    if module is None or "." in name or not _is_installed(module) or getattr(module, name, None) is not value:
        return ""
    return module.__name__

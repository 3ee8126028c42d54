"""Functions and classes of a script or a notebook cell as the text of a file that makes them again.

A function or class is written as `inspect.getsource` gives it, under what it looks up among the names of its
module: other functions and classes, imports, plain data as they are now. Nothing else is written: a lambda,
a function that uses variables of an enclosing one or an object with a state is a NoSourceError.
"""

import ast
import builtins
import dis
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import smopd
from smopd.plugins import file_text_digest

_INSTALLED = [Path(smopd.__file__).parent.resolve()]
_INSTALLED += [Path(sysconfig.get_path(p)).resolve() for p in ("stdlib", "platstdlib", "purelib", "platlib")]


class NoSourceError(Exception):
    """Why an object has no text that would make it again."""


class Source:
    """A growing file: `expression` gives the words for an object and adds what they need above them."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._imports: list[str] = []
        self._definitions: list[str] = []

    def text(self, last: str = "") -> str:
        return "\n\n\n".join(filter(None, ["\n".join(self._imports), *self._definitions, last])) + "\n"

    def expression(self, value: Any) -> str:
        """Python words for a value, in a file that has what `text` says above."""
        if isinstance(value, FunctionType | type):
            self._define(value.__name__, value)
            return value.__name__
        if is_dataclass(value):
            words = [f"{f.name}={self.expression(getattr(value, f.name))}" for f in fields(value) if f.init]
            return f"{self.expression(type(value))}({', '.join(words)})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.expression(v)}" for k, v in value.items()) + "}"
        if isinstance(value, set) and value:  # in an order that does not change
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
        if isinstance(value, ModuleType):
            self._imports.append(_import_module(value, name))
        elif home := _importable_from(value):
            self._imports.append(f"from {home} import {value.__name__}" + _renamed(value, name))
        elif isinstance(value, FunctionType | type) and value.__name__ == name:
            self._definitions.append(self._definition(name, value))
        else:
            self._definitions.append(f"{name} = {self.expression(value)}")

    def _definition(self, name: str, value: Any) -> str:
        """The text of a function or class of the user's; what it looks up in its module is defined before."""
        if name == "<lambda>":
            raise NoSourceError("a lambda has no text of its own")
        if getattr(value, "__closure__", None):
            raise NoSourceError(f"{name} uses variables of the function around it")
        try:
            text = textwrap.dedent(inspect.getsource(value)).strip("\n")
            looked_up = set(_looked_up(compile(text, "<source>", "exec", dont_inherit=True)))
        except (OSError, TypeError, SyntaxError):
            raise NoSourceError(f"the text of {name} is not at hand") from None
        module = getattr(value, "__globals__", None) or vars(sys.modules[value.__module__])
        for other in sorted(looked_up & module.keys() - {name}):
            if not other.startswith("__") and getattr(builtins, other, None) is not module[other]:
                self._define(other, module[other])
        return text


def _looked_up(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _looked_up(constant)


def _installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return any(Path(file).resolve().is_relative_to(root) for root in _INSTALLED)


def _import_module(module: ModuleType, name: str) -> str:
    if module.__name__ == "__main__" or sys.modules.get(module.__name__) is not module:
        raise NoSourceError(f"the module {module.__name__} cannot be imported elsewhere")
    file, text = getattr(module, "__file__", None), f"import {module.__name__}" + _renamed(module, name)
    if _installed(module) or not file:
        return text
    return f"{text}  # a module of yours, its text had the hash {file_text_digest(Path(file))}"


def _renamed(value: Any, name: str) -> str:
    return "" if value.__name__ == name else f" as {name}"


def _importable_from(value: Any) -> str:
    """The installed module from which any process can import a function or class; empty for the user's."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__qualname__", ".")
    if module is None or "." in name or not _installed(module) or getattr(module, name, None) is not value:
        return ""
    return module.__name__

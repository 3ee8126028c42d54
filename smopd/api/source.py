"""Python objects of a script or a notebook cell as the text of a file that makes them again.

A function or class is written with everything it refers to: what is installed is imported, plain data are
written as they are now, what the user defined is written too, and a variable of an enclosing function becomes
one of the file. A module of the user's is imported, with a hash of its text beside. What cannot be written so
is a NoSourceError that says why.
"""

import ast
import builtins
import dis
import inspect
import linecache
import re
import sys
import sysconfig
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import smopd
from smopd.plugins import file_text_digest

_INSTALLED = [Path(smopd.__file__).parent, *(Path(sysconfig.get_path(p)) for p in ("stdlib", "platstdlib"))]
_INSTALLED += [Path(sysconfig.get_path(p)) for p in ("purelib", "platlib")]


class NoSourceError(Exception):
    """Why an object has no text that would make it again."""


class Source:
    """A growing file: `expression` gives the words for an object and adds what they need above them."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._statements: list[str] = []

    def text(self, last: str = "") -> str:
        """The file so far, and a last part."""
        imports = [s for s in self._statements if s.startswith(("import ", "from "))]
        others = [s for s in self._statements if s not in imports]
        return "\n\n\n".join(filter(None, ["\n".join(imports), *others, last])) + "\n"

    def expression(self, value: Any) -> str:
        """Python words for a value, in a file that has what `text` says above."""
        if _is_literal(value):
            return repr(value)
        value = _undecorated(value)
        if isinstance(value, float):  # no number that could be written: inf, nan
            return f"float({str(value)!r})"
        if isinstance(value, re.Pattern):
            return f"__import__('re').compile({value.pattern!r}, {value.flags})"
        if isinstance(value, list | tuple):
            inner = ", ".join(map(self.expression, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k!r}: {self.expression(v)}" for k, v in value.items()) + "}"
        if isinstance(value, partial):
            words = [self.expression(p) for p in (value.func, *value.args)]
            words += [f"{key}={self.expression(v)}" for key, v in value.keywords.items()]
            return f"{self.expression(partial)}({', '.join(words)})"
        if is_dataclass(value) and not isinstance(value, type):
            return self._record(value)
        core = inspect.unwrap(value) if callable(value) else value
        if not isinstance(core, FunctionType | type | types.BuiltinFunctionType):
            raise NoSourceError(f"an object of the class {type(value).__name__} has no text")
        name = core.__name__
        return self.define(f"function{len(self._values)}" if name == "<lambda>" else name, value)

    def define(self, name: str, value: Any) -> str:
        """Have a name stand for a value in the file; the name."""
        value = _undecorated(value)
        if name in self._values:
            known = self._values[name]
            if known is value or (_is_literal(value) and _is_literal(known) and known == value):
                return name
            raise NoSourceError(f"two different things are named {name}")
        self._values[name] = value
        statement = self._statement(name, value)
        if statement and statement not in self._statements:
            self._statements.append(statement)
        return name

    def _record(self, value: Any) -> str:
        """A dataclass by its fields."""
        given = [f for f in fields(value) if f.init and not _same(getattr(value, f.name), f.default)]
        words = [f"{f.name}={self.expression(getattr(value, f.name))}" for f in given]
        return f"{self.expression(type(value))}({', '.join(words)})"

    def _statement(self, name: str, value: Any) -> str:
        if isinstance(value, ModuleType):
            return _import_of(value, name)
        core = inspect.unwrap(value) if callable(value) else value
        if not isinstance(core, FunctionType | type | types.BuiltinFunctionType):
            return f"{name} = {self.expression(value)}"
        if home := _importable(value):
            as_name = "" if home[1] == name else f" as {name}"
            return f"from {home[0]} import {home[1]}{as_name}"
        if isinstance(core, type):
            text, around = _class_text(core), vars(sys.modules.get(core.__module__, builtins))
        elif isinstance(core, FunctionType):
            text, around = _function_text(core), core.__globals__ | _closure(core)
        else:
            raise NoSourceError(f"{name} is a built-in that cannot be imported")
        own = core.__name__
        for needed in _names(text):
            if needed not in (own, name) and needed in around and not _is_builtin(needed, around[needed]):
                self.define(needed, around[needed])
        if text.startswith("lambda"):
            return f"{name} = {text}"
        return text if own == name else f"{text}\n\n\n{name} = {own}"


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value) and _plain(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_plain(k) and _plain(v) for k, v in value.items())
    if isinstance(value, list | tuple | set):
        return all(map(_plain, value))
    return type(value) in (type(None), bool, int, float, complex, str, bytes)


def _same(a: Any, b: Any) -> bool:
    return a is b or (_is_literal(a) and _is_literal(b) and a == b)


def _is_builtin(name: str, value: Any) -> bool:
    return getattr(builtins, name, None) is value or name.startswith("__")


def _installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return any(Path(file).resolve().is_relative_to(root.resolve()) for root in _INSTALLED)


def _import_of(module: ModuleType, name: str) -> str:
    own = module.__name__
    if own == "__main__" or sys.modules.get(own) is not module:
        raise NoSourceError(f"the module {own} cannot be imported elsewhere")
    text = f"import {own}" if name == own else f"import {own} as {name}"
    file = getattr(module, "__file__", None)
    if not _installed(module) and file:
        text += f"  # a module of yours, its text had the hash {file_text_digest(Path(file))}"
    return text


def _importable(value: Any) -> tuple[str, str] | None:
    """Module and name from which any process can import a function or class; None if it is the user's."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    home = sys.modules.get(module or "")
    if home is None or "." in name or not _installed(home) or getattr(home, name, None) is not value:
        return None
    return home.__name__, name


def _undecorated(value: Any) -> Any:
    """The user's function whose decorator made this dataclass, such as a row loss; else the value."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return next((v for v in vars(value).values() if _is_decorated(v) and not _importable(v)), value)


def _is_decorated(value: Any) -> bool:
    if not isinstance(value, FunctionType) or value.__name__ == "<lambda>":
        return False
    try:
        return _function_text(value).startswith("@")
    except NoSourceError:
        return False


def _closure(function: FunctionType) -> dict[str, Any]:
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    try:
        return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    except ValueError:
        raise NoSourceError(f"{function.__name__} refers to a variable that has no value yet") from None


def _names(text: str) -> list[str]:
    """The names that a file with this text would look up among its own."""

    def walk(code: CodeType) -> Iterator[str]:
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield str(step.argval)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from walk(constant)

    return list(dict.fromkeys(walk(compile(text, "<source>", "exec", dont_inherit=True))))


def _function_text(function: FunctionType) -> str:
    """The statement of a def, with its decorators, or the words of a lambda."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(code)
        tree = ast.parse("".join(lines))
    except (OSError, TypeError, SyntaxError):
        raise NoSourceError(f"the text of {function.__name__} is not at hand") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return _whole(textwrap.dedent("".join(lines[first - 1 : node.end_lineno])), node.name)
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno]
    texts = [ast.unparse(node) for node in found]
    alike = [text for text in texts if _lambda_code(text) == _shape(code)] if len(texts) > 1 else texts
    if len(set(alike)) != 1:
        raise NoSourceError("its text is not at hand, or several lambdas stand in its line")
    return alike[0]


def _lambda_code(text: str) -> tuple[Any, ...]:
    made = compile(text, "<source>", "eval", dont_inherit=True).co_consts
    return next((_shape(c) for c in made if isinstance(c, CodeType)), ())


def _shape(code: CodeType) -> tuple[Any, ...]:
    """What tells lambdas apart, wherever their variables live."""
    found: list[Any] = [code.co_varnames]
    for step in dis.get_instructions(code):
        if step.opname not in ("RESUME", "COPY_FREE_VARS", "PUSH_NULL"):
            value = "code" if isinstance(step.argval, CodeType) else repr(step.argval)
            found.append(("LOAD" if step.opname.startswith("LOAD_") else step.opname, value))
    return tuple(found)


def _class_text(kind: type) -> str:
    try:
        return _whole(textwrap.dedent(inspect.getsource(kind)), kind.__name__)
    except (OSError, TypeError):
        pass
    # In a notebook the cell that defined it is known to the line cache alone, which has no time for it.
    cells = [entry[2] for entry in list(linecache.cache.values()) if len(entry) == 4 and entry[1] is None]
    for lines in reversed(cells):
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "".join(lines[first - 1 : node.end_lineno])
    raise NoSourceError(f"the text of the class {kind.__name__} is not at hand")


def _whole(text: str, name: str) -> str:
    try:
        ast.parse(text)
    except SyntaxError:
        raise NoSourceError(f"the text of {name} cannot stand by itself") from None
    return text.strip("\n")

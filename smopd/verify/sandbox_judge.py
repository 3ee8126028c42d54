"""Inside a sandbox: a program and its tests, in two processes that exchange plain data over a pipe.

Only the standard library is imported: this text runs where smopd does not exist. It leaves out where the
processes come from and what they may do (`sandbox_worker.py`).
"""

import atexit
import builtins
import collections
import datetime
import decimal
import fractions
import importlib
import io
import operator
import os
import pickle
import random
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

_MESSAGE = 64 << 20  # bytes of one call or result
# Imported once, before the forks; also the only modules that tests take over from a program.
SHARED_MODULES = [
    "array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "itertools", "json", "math", "operator", "random", "re",
    "statistics", "string", "sys", "time", "types", "typing",
]  # fmt: skip


def write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[: 1 << 20]) :]


def take(fd: int, size: int, wait: Callable[[], None] = lambda: None) -> bytes:
    data = bytearray()
    while len(data) < size:
        wait()
        if not (piece := os.read(fd, min(size - len(data), 1 << 20))):
            raise EOFError
        data += piece
    return bytes(data)


def send(fd: int, data: bytes) -> None:
    write(fd, struct.pack("!I", len(data)) + data)


def receive(fd: int, first: bytes = b"", wait: Callable[[], None] = lambda: None) -> bytes:
    (size,) = struct.unpack("!I", first + take(fd, 4 - len(first), wait))
    if size > _MESSAGE:
        raise ValueError("a message too large")
    return take(fd, size, wait)


_PLAIN = {
    type(None), bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range,
    collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque, datetime.date,
    datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal,
    fractions.Fraction,
}  # fmt: skip
_NAMED = {(kind.__module__, kind.__qualname__): kind for kind in _PLAIN}
_BASES = (int, float, str, bytes, tuple, list, dict, set, frozenset)
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **named: function(*args, **named), "getattr": getattr, "setattr": setattr,
    "list": list, "next": next, "len": len, "getitem": operator.getitem,
}  # fmt: skip


class Program:
    """The untrusted side: runs the program, then what the tests ask for. Only plain data leave it."""

    def __init__(self, text: bytes, entry: str, tested: bool) -> None:
        self.entry, self.objects, self.numbers = entry, list[Any](), dict[int, int]()
        self.module = types.ModuleType("solution" if tested else "__main__")
        sys.modules[self.module.__name__] = self.module
        random.seed(0)
        code: Any = 0
        failure: BaseException | None = None
        try:
            source = text.decode("utf-8", "surrogatepass")
            exec(compile(source, "<program>", "exec", dont_inherit=True), vars(self.module))
        except SystemExit as exit:
            code, failure = exit.code, exit
        except BaseException as error:
            traceback.print_exc(limit=-5)
            code, failure = 1, error
        if tested:
            self.serve(failure)
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))

    def serve(self, failure: BaseException | None) -> None:
        while True:
            name, args, named = _Load(receive(3), self.objects.__getitem__).load()
            try:
                if failure:
                    raise failure
                result = self.find(*args) if name == "find" else _OPERATIONS[name](*args, **named)
                answer = _dump((True, result), self.keep)
            except BaseException as error:
                answer = _dump((False, (type(error).__name__, str(error)[:300])), self.keep)
            sys.stdout.flush()
            send(3, answer)

    def find(self, names: list[str]) -> dict[str, Any]:
        """The program's own of these names, and its function under test."""
        mine = vars(self.module)
        found = {name: mine[name] for name in names if name in mine}
        if self.entry:
            own = [value for value in mine.values() if getattr(value, "__module__", "") == "solution"]
            functions = [value for value in own if callable(value) and not isinstance(value, type)]
            if self.entry in mine:
                function = mine[self.entry]
            elif "Solution" in mine:
                function = getattr(mine["Solution"](), self.entry)
            elif functions:  # of whatever name: a user who reveals a task bit by bit may never have said it
                function = functions[-1]
            else:
                raise NameError(f"the program defines no function {self.entry}")
            found[self.entry] = found["candidate"] = function
        return found

    def keep(self, value: Any) -> tuple[str, Any] | None:
        """None for what crosses as plain data; for the rest the number under which it stays here."""
        kind = type(value)
        if kind in _PLAIN or (isinstance(value, type) and value in _PLAIN) or issubclass(kind, _BASES):
            return None
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return "object", self.numbers[id(value)]


class _Dump(pickle.Pickler):
    def __init__(self, file: io.BytesIO, keep: Callable[[Any], Any]) -> None:
        super().__init__(file, 5)
        self.keep = keep

    def persistent_id(self, value: Any) -> Any:
        return self.keep(value)

    def reducer_override(self, value: Any) -> Any:
        """A named tuple or another heir of a plain type crosses as the plain one, and so compares as one."""
        base = next((base for base in _BASES if isinstance(value, base)), None)
        return NotImplemented if base is None or type(value) in _PLAIN else (base, (base(value),))


def _dump(value: Any, keep: Callable[[Any], Any]) -> bytes:
    _Dump(file := io.BytesIO(), keep).dump(value)
    return file.getvalue()


class _Load(pickle.Unpickler):
    """Builds only plain data, and what `kept` makes of the rest: safe against what a program may send."""

    def __init__(self, data: bytes, kept: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(data))
        self.kept = kept

    def find_class(self, module: str, name: str) -> Any:
        return _NAMED[module, name]

    def persistent_load(self, number: Any) -> Any:
        return self.kept(number)


class _Gone(BaseException):
    """The program ended, or spoke out of turn."""


def _asking(name: str) -> Callable[..., Any]:
    return lambda self, *args, **named: self._ask(name, self, *args, **named)


class _Remote:
    """Something of the program's that is no plain data. It equals only itself, whatever it says of itself."""

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        vars(self).update(_ask=ask, _number=number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("getattr", self, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ask("list", self))

    def __bool__(self) -> bool:
        return True

    __call__, __setattr__, __next__ = map(_asking, ("call", "setattr", "next"))
    __len__, __getitem__ = map(_asking, ("len", "getitem"))


class Tests:
    """The trusted side: runs the tests, and asks the program for what they call."""

    def __init__(self, fd: int) -> None:
        self.fd, self.gone, self.remotes = fd, False, dict[int, _Remote]()

    def ask(self, name: str, *args: Any, **named: Any) -> Any:
        try:
            if self.gone:
                raise _Gone
            number = lambda value: vars(value)["_number"] if type(value) is _Remote else None  # noqa: E731
            send(self.fd, _dump((name, args, named), number))
            good, value = _Load(receive(self.fd), self.meet).load()
        except (OSError, EOFError, KeyError, ValueError, TypeError, pickle.UnpicklingError) as error:
            self.gone = True  # for good, even where a test catches everything
            raise _Gone(f"{type(error).__name__}: {error}") from None
        if good:
            return value
        kind = getattr(builtins, value[0], None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            raise kind(value[1])
        raise RuntimeError(f"{value[0]}: {value[1]}")

    def meet(self, number: tuple[str, Any]) -> Any:
        kind, which = number
        if kind == "module":
            return importlib.import_module(which) if which in SHARED_MODULES else None
        return self.remotes.setdefault(which, _Remote(self.ask, which))

    def run(self, text: str) -> tuple[str, str]:
        try:
            code = compile(text, "<tests>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return "error", f"the tests do not compile: {error}"
        try:
            # A program's own `abs` or `sorted` must not take the place of the builtin in the tests.
            exec(code, self.ask("find", [name for name in _names(code) if not hasattr(builtins, name)]))
        except _Gone as gone:
            return "failed", f"the program was gone before the tests were through ({gone})"
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == "<tests>"]
            line = f" in the test {text.splitlines()[lines[-1] - 1].strip()}" if lines and lines[-1] else ""
            return "failed", f"{type(error).__name__}: {str(error)[:200]}{line}"
        return ("failed", "the program was gone before the tests were through") if self.gone else ("ok", "")


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)

"""Inside a sandbox, the trusted side: run the tests, and ask the program's process for what they call.

Nothing that comes from that process is trusted. It may send only plain data of exact types
(`smopd/verify/wire.py`) or a number that stands for an object there. Such an object is a `Remote`: it gives
data when asked, but it takes part in no comparison, and in no operator, that would show it the value a test
expects. The tests have their own builtins, modules and well-known names; only other names that they neither
import nor bind are looked up in the program. Tests cannot pass functions or objects of their own to the
program, and do not see changes that it makes to its arguments.
"""

import ast
import builtins
import collections
import contextlib
import importlib
import os
import random
import symtable
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from smopd.verify.sandbox.program import ARGUMENTS, ARITHMETIC
from smopd.verify.wire import Decoder, Encoder, listed, receive, send, text

_AHEAD = 256  # items requested at once, at most, when tests iterate over a generator
_ARGUMENTS, _CHARACTERS = 8, 10_000  # limits for the arguments of an exception
# A test that uses one of these without importing it means the library's, not one defined by the program.
_WELL_KNOWN = {
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple", "copy": "deepcopy",
    "datetime": "date timedelta timezone", "decimal": "Decimal", "fractions": "Fraction",
    "functools": "cmp_to_key partial reduce", "itertools": "chain islice zip_longest",
    "math": "ceil floor inf isclose isfinite isinf isnan nan pi sqrt", "operator": "attrgetter itemgetter",
    "typing": "Any Callable Dict Iterable Iterator List Optional Sequence Set Tuple Union",
    "unittest": "TestCase",
}  # fmt: skip
WELL_KNOWN_FROM = {name: module for module, names in _WELL_KNOWN.items() for name in names.split()}


class _Gone(BaseException): ...  # the program ended, or sent something that is no answer


class _Untestable(TypeError): ...  # the tests pass the program something that cannot be sent


class Remote:
    """An object in the program's process. It equals only itself, whatever its own methods say."""

    __slots__ = ("_ask", "_number", "_ready")

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        for name, value in (("_ask", ask), ("_number", number), ("_ready", collections.deque())):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__dict__"):
            raise AttributeError(name)
        return self._ask("getattr", self, name)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        return self._ask("call", self, *args, named=named)

    def __iter__(self) -> Iterator[Any]:
        source = self._ask("iter", self)
        return _items(source) if type(source) is Remote else iter(source)

    def __next__(self) -> Any:
        if not self._pull(1):
            raise StopIteration
        return self._ready.popleft()

    def _pull(self, most: int) -> bool:
        if not self._ready:
            self._ready.extend(self._ask("pull", self, most, due=list))
        return bool(self._ready)

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not Remote:
            return self is other
        if not self._ask("has identity", self, due=bool):
            raise _Untestable("the tests compare objects of the program's, which it alone could do")
        return False

    __hash__ = object.__hash__

    def __instancecheck__(self, other: Any) -> bool:
        return type(other) is Remote and self._ask("isinstance", other, self, due=bool)

    def __deepcopy__(self, memo: Any) -> Any:
        return self._ask("deepcopy", self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an object of the program's stays there")


def _items(source: Remote) -> Iterator[Any]:
    """Yield a remote iterator's items, requested in growing batches, as it may be endless."""
    most = 1
    while source._pull(most):
        yield source._ready.popleft()
        most = min(2 * most, _AHEAD)


def _ask_there(operation: str, due: type | None) -> Callable[..., Any]:
    return lambda remote, *args: remote._ask(operation, remote, *args, due=due)


def _arithmetic(operation: str) -> Callable[[Remote, Any], Any]:
    def operate(one: Remote, other: Any) -> Any:
        # Two objects of the program may make a third; one that poses as a number must not decide `f(2) - 4`.
        if type(other) is not Remote:
            return NotImplemented
        if type(result := one._ask(operation, one, other)) is not Remote:
            raise TypeError("an operator between objects of the program's must give another of its objects")
        return result

    return operate


# Operations of the program on its object, and the type that the answer must have.
_DUE: dict[str, type | None] = {"len": int, "bool": bool, "str": str, "repr": str}
_DUE |= dict.fromkeys(("copy", "getitem", "setitem", "delitem", "setattr", "delattr"))
for _name, _due in _DUE.items():
    setattr(Remote, f"__{_name}__", _ask_there(_name, _due))
for _name in ARITHMETIC:
    setattr(Remote, f"__{_name.strip('_')}__", _arithmetic(_name))


class Tests:
    def __init__(self, fd: int) -> None:
        self.fd, self.gone, self.lock = fd, "", threading.Lock()
        self.remotes, self.exceptions = dict[int, Remote](), dict[int, type[Exception]]()
        self.encode = Encoder(self.number)
        self.decode = Decoder(handle=self.remote, exception=self.exception)

    def number(self, value: Any) -> dict[str, Any]:
        """Return the handle of a remote object; nothing else but plain data may be sent."""
        if type(value) is Remote:
            return {"handle": value._number}
        raise _Untestable(f"the tests give the program a {type(value).__name__}, which cannot cross")

    def remote(self, number: Any) -> Remote:
        if type(number) is not int or number < 0:
            raise ValueError("not the number of an object")
        return self.remotes.setdefault(number, Remote(self.ask, number))

    def exception(self, payload: Any) -> type[Exception]:
        """Return a new class for an exception of the program, so that `except` catches no builtin one."""
        number, name, base = listed(payload, size=3)
        if type(number) is not int:
            raise ValueError("not the number of a class")
        if number not in self.exceptions:
            parent = base if base in self.exceptions.values() else _builtin_exception(text(base))
            if parent is None:
                raise ValueError("not the name of an exception")
            self.exceptions[number] = type(text(name)[:100], (parent,), {})
        return self.exceptions[number]

    def ask(self, operation: str, *args: Any, due: type | None = None, named: Any = None) -> Any:
        """Have the program do something; an answer of another type than `due` counts as no answer."""
        number = os.urandom(8).hex()  # unpredictable, so that no answer can be sent ahead
        request = self.encode([number, operation, list(args), named or {}])
        with self.lock:
            if self.gone:
                raise _Gone(self.gone)
            try:
                send(self.fd, request)
                echo, good, *rest = listed(self.decode(receive(self.fd)))
                if (type(echo), echo, type(good)) != (str, number, bool):
                    raise ValueError("an answer to something else")
                value, arguments = (rest[0], []) if good else rest
                if good and (len(rest) != 1 or (due and type(value) is not due)):
                    raise ValueError("not the answer that was due")
                error = None if good else self.error(value, arguments)
            except Exception as problem:
                # Final, even if tests catch all. Only the type is kept: a message could call the program.
                self.gone = type(problem).__name__
                raise _Gone(self.gone) from None
        if error:
            raise error
        return value

    def error(self, kind: Any, arguments: Any) -> Exception:
        """Build the exception that the program raised; it is always an `Exception`."""
        for argument in listed(arguments):
            if type(argument) not in ARGUMENTS:
                raise ValueError("not the argument of an exception")
        if len(arguments) > _ARGUMENTS or sum(map(len, map(str, arguments))) > _CHARACTERS:
            raise ValueError("too much of an exception")
        known = kind if kind in self.exceptions.values() else _builtin_exception(text(kind))
        # A StopIteration would end an iteration of the tests, as in `all(map(...))`.
        if known is not None and not issubclass(known, (StopIteration, StopAsyncIteration)):
            with contextlib.suppress(Exception):  # the class may want other arguments
                return known(*arguments)
        return RuntimeError(": ".join(map(str, [known.__name__ if known else kind[:100], *arguments])))

    def run(self, source: str, entry: str) -> tuple[str, str]:
        try:
            code = compile(source, "<tests>", "exec", dont_inherit=True)
            names = free_names(symtable.symtable(source, "<tests>", "exec"))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return "error", f"the tests do not compile: {error}"
        random.seed(source)  # the same in every run, but not predictable by the program
        status, detail = "ok", ""
        try:
            exec(code, {"__name__": "tests", "__builtins__": builtins, **self.names(names, entry, source)})
        except _Untestable as error:
            status, detail = "error", str(error)
        except BaseException as error:
            status, detail = "failed", self.describe(error, source)
        if self.gone:
            return "failed", f"the program was gone before the tests were through ({self.gone})"
        return status, detail

    def names(self, names: set[str], entry: str, source: str) -> dict[str, Any]:
        """Resolve free names: modules and well-known names here, all others in the program."""
        asked = {n for n in names - {"candidate", entry} - vars(builtins).keys() if not n.startswith("__")}
        ours = {name for name in asked if name in sys.stdlib_module_names or name in WELL_KNOWN_FROM}
        theirs = asked - ours | ({"candidate"} if not entry else set())
        values = self.ask("names", sorted(theirs), due=dict)
        program_values = {name: values[name] for name in theirs if name in values}
        tested = dict.fromkeys(("candidate", entry), values["candidate"]) if entry else {}
        return {**program_values, **{name: _import_for_tests(name, source) for name in ours}, **tested}

    def describe(self, error: BaseException, source: str) -> str:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == "<tests>"]
        line = f" in the test {source.splitlines()[lines[-1] - 1].strip()}" if lines and lines[-1] else ""
        try:
            message = str(error)[:200]
        except BaseException:  # an int of too many digits, or an object of the program
            message = ""
        return f"{type(error).__name__}: {message}{line}"


def _builtin_exception(name: str) -> type[Exception] | None:
    builtin = getattr(builtins, name, None)
    return builtin if isinstance(builtin, type) and issubclass(builtin, Exception) else None


def free_names(module: symtable.SymbolTable) -> set[str]:
    """Return the global names that code uses and its top level neither binds nor imports."""
    used, tables = set[str](), [module]
    while tables:
        scope = tables.pop()
        tables += scope.get_children()
        symbols = [symbol for symbol in scope.get_symbols() if symbol.is_referenced()]
        used |= {symbol.get_name() for symbol in symbols if scope is module or symbol.is_global()}
    return used - {s.get_name() for s in module.get_symbols() if s.is_assigned() or s.is_imported()}


def _import_for_tests(name: str, source: str) -> Any:
    module = importlib.import_module(WELL_KNOWN_FROM.get(name, name))
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    called = any(isinstance(function, ast.Name) and function.id == name for function in calls)
    # In `datetime(2020, 1, 1)` the class is meant, not the module.
    return getattr(module, name, module) if called or name in WELL_KNOWN_FROM else module

"""Inside a sandbox, the untrusted side: run a program, then do with it what its tests ask for.

A program can change everything in this process, this code too. So nothing here may prevent a wrong verdict
(that is `judge.py`'s part); it only has to serve right programs.
"""

import atexit
import contextlib
import copy
import operator
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

from smopd.verify.wire import Decoder, Encoder, receive, send

CHANNEL = 3  # file descriptor for requests of the tests
ARGUMENTS = (str, int, float, bool, bytes, type(None))  # of an exception; others become text
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"]
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, /, *args, **named: function(*args, **named),
    "getattr": getattr, "setattr": setattr, "delattr": delattr, "iter": iter, "len": len, "bool": bool,
    "str": str, "repr": repr, "isinstance": isinstance, "copy": copy.copy, "deepcopy": copy.deepcopy,
    "has identity": lambda value: type(value).__eq__ is object.__eq__,  # it equals only itself
    **{name: getattr(operator, name) for name in ("getitem", "setitem", "delitem", *ARITHMETIC)},
}  # fmt: skip


class Program:
    def __init__(self, source: bytes, entry: str, tested: bool) -> None:
        self.entry, self.objects, self.numbers = entry, list[Any](), dict[int, int]()
        self.late = dict[int, BaseException]()  # by id of an iterator: its error after items already sent
        self.operations: dict[str, Any] = {**_OPERATIONS, "names": self.names, "pull": self.pull}
        self.module = types.ModuleType("solution" if tested else "__main__")
        sys.modules[self.module.__name__] = self.module
        random.seed(0)
        code: Any = 0
        failure: BaseException | None = None
        try:
            text = source.decode("utf-8", "surrogatepass")
            exec(compile(text, "<program>", "exec", dont_inherit=True), vars(self.module))
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
        encode, decode = Encoder(self.keep), Decoder(handle=self.objects.__getitem__)
        while True:
            number, operation, args, named = decode(receive(CHANNEL))
            try:
                if failure:
                    raise failure
                answer = encode([number, True, self.operations[operation](*args, **named)])
            except BaseException as error:
                answer = encode([number, False, *self.raised(error)])
            with contextlib.suppress(Exception):  # the program may have closed it
                sys.stdout.flush()
            send(CHANNEL, answer)

    def names(self, names: list[str]) -> dict[str, Any]:
        """Return those of the names that the program defines, and its function under test as `candidate`."""
        mine = vars(self.module)
        values = {name: mine[name] for name in names if name in mine}
        if self.entry:
            defined = [value for value in mine.values() if getattr(value, "__module__", "") == "solution"]
            functions = [value for value in defined if callable(value) and not isinstance(value, type)]
            if self.entry in mine:
                values["candidate"] = mine[self.entry]
            elif "Solution" in mine:
                values["candidate"] = getattr(mine["Solution"](), self.entry)
            elif functions:  # of any name: the user's shards may never have said it
                values["candidate"] = functions[-1]
            else:
                raise NameError(f"the program defines no function {self.entry}")
        return values

    def pull(self, iterator: Iterator[Any], most: int) -> list[Any]:
        """Return up to `most` further items, none at the end; an error comes after the items before it."""
        if error := self.late.pop(id(iterator), None):
            raise error
        items = list[Any]()
        try:
            while len(items) < most:
                items.append(next(iterator))
        except StopIteration:
            pass
        except BaseException as error:
            if not items:
                raise
            self.late[id(iterator)] = error
        return items

    def keep(self, value: Any) -> dict[str, Any]:
        """Keep an object that is no plain data here, and return the handle for the tests."""
        number = self.numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ != "builtins":
            base = next(base for base in value.__bases__ if issubclass(base, Exception))
            known = base.__module__ == "builtins"
            return {"exception": [number, value.__name__, base.__name__ if known else self.keep(base)]}
        return {"handle": number}

    def raised(self, error: BaseException) -> tuple[Any, list[Any]]:
        """Return an exception's class, or the name if it is builtin, and its arguments."""
        kind, args = type(error), list(error.args)
        known = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        try:
            message = str(error)[:1000]
            plain = all(type(arg) in ARGUMENTS for arg in args)
            args = args if plain and str(known(*args)) == message else [message]
        except Exception:  # in a method of the program, or the class wants other arguments
            args = []
        return kind if issubclass(kind, Exception) and kind is not known else known.__name__, args

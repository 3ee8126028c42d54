"""Verifiers of the user's own: a Python file with functions marked `@verifier`, for tasks that smopd does not
know.

    from smopd.verify import verifier

    @verifier("units", answer=("value", "unit"))
    def units(answer, reply):
        return f"{answer['value']} {answer['unit']}" in reply

A function gets the example's answer and the reply without its think blocks. It returns True or False, None
where the reply holds no answer, or a `Verdict`. It runs in a worker process, where a loop without end is a
timeout and an exception an error; the process works with the text the file had when it was loaded. It is the
user's own code: nothing here keeps it from doing harm.
"""

import importlib.util
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from smopd.data import tasks
from smopd.errors import UserError
from smopd.verify import workers
from smopd.verify.verdict import STATUSES, Verdict
from smopd.verify.worker import line_in

TIMEOUT = 5.0
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Own:
    """A marked function, and where it stands."""

    task: str
    function: Callable[..., Any]
    fields: tuple[str, ...]
    timeout: float
    memory_mb: int

    @property
    def line(self) -> int:
        """The line of its definition."""
        return int(self.function.__code__.co_firstlineno)


_marked: list[_Own] = []  # every function marked in this process, in order
_loaded: dict[str, tuple[_Own, workers.Kind]] = {}  # by task


def verifier(
    task: str,
    *,
    answer: str | Sequence[str] = (),
    timeout: float = TIMEOUT,
    memory_mb: int = workers.MEMORY_MB,
) -> Callable[[F], F]:
    """Mark a function as the verifier of a task whose answers hold these fields; the function itself stays as
    it is.
    """
    fields = (answer,) if isinstance(answer, str) else tuple(answer)
    if not isinstance(task, str) or not re.fullmatch(r"[\w.-]+", task):
        raise ValueError(f"a task's name is one word of letters, digits, '_', '-' and '.'; found {task!r}")
    if not all(isinstance(field, str) for field in fields):
        raise ValueError(f"answer names the fields of an example's answer; found {answer!r}")
    if not (isinstance(timeout, (int, float)) and 0 < timeout <= 3600):
        raise ValueError(f"timeout is a number of seconds, at most 3600; found {timeout!r}")
    if not (isinstance(memory_mb, int) and memory_mb >= 64):
        raise ValueError(f"memory_mb is a whole number, at least 64; found {memory_mb!r}")

    def mark(function: F) -> F:
        if not isinstance(function, types.FunctionType):
            raise TypeError(f"@verifier marks a function, not a {type(function).__name__}")
        _marked.append(_Own(task, function, fields, float(timeout), memory_mb))
        return function

    return mark


def load_verifiers(paths: Sequence[str | Path]) -> None:
    """Take over the verifiers of these files. A file loaded before is read anew; a UserError changes nothing."""
    found: dict[str, tuple[_Own, workers.Kind]] = {}
    files = {str(Path(path).expanduser().resolve()): str(path) for path in paths}
    for file, name in files.items():
        source = _read(Path(file), name)
        kind = workers.Kind("own", file, source)
        for own in _run(file, source, name):
            here = f"{name}, line {own.line}"
            if own.task in (*tasks.TASKS, *tasks.UNSCORED):
                raise UserError(f"{here}: task {own.task!r} is one of smopd's own; choose another name")
            before = found.get(own.task) or _loaded.get(own.task)
            if before and (own.task in found or before[1].file not in files):
                there = f"{before[1].file}, line {before[0].line}"
                raise UserError(
                    f"{here}: task {own.task!r} has a verifier already ({there}); give one of them another name"
                )
            found[own.task] = own, kind
    for task, (_, kind) in list(_loaded.items()):
        if kind.file in files:
            del _loaded[task]
            tasks.forget(task)
            if kind not in [new for _, new in found.values()]:
                workers.close(kind)  # of a text that is no longer the file's
    for task, (own, kind) in found.items():
        _loaded[task] = own, kind
        tasks.register(task, own.fields)


def job(task: str, answer: Mapping[str, Any], reply: str) -> workers.Job:
    """What a worker has to do for a verdict."""
    own, kind = _loaded[task]
    return workers.Job(
        kind, {"task": task, "answer": dict(answer), "reply": reply}, own.timeout, own.memory_mb
    )


def _read(path: Path, name: str) -> str:
    try:
        return importlib.util.decode_source(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{name}: no such file of verifiers") from None
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise UserError(f"{name}: cannot be read as Python: {error}") from None


def _run(file: str, source: str, name: str) -> list[_Own]:
    """The marked functions of a file; whatever goes wrong in it is the user's to mend, and has a line."""
    try:
        found = _execute(file, source)
    except SyntaxError as error:
        if error.filename == file:
            raise UserError(f"{name}, line {error.lineno}: not valid Python: {error.msg}") from None
        raise UserError(
            f"{name}, line {line_in(error, file) or 1}: {error.msg} ({error.filename}, line {error.lineno})"
        ) from None
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{name}, line {line_in(error, file) or 1}: {type(error).__name__}: {error}"
        ) from None
    if not found:
        raise UserError(
            f"{name}: holds no function marked with @verifier (from smopd.verify import verifier)"
        )
    return found


def _execute(file: str, source: str) -> list[_Own]:
    name = "smopd_verifiers_" + re.sub(r"\W", "_", Path(file).stem)
    module, before, marked = types.ModuleType(name), sys.modules.get(name), len(_marked)
    module.__file__ = file
    sys.modules[name] = module  # dataclasses look their module up
    try:
        with _folder_on_path(str(Path(file).parent)):
            exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    found = [own for own in _marked[marked:] if own.function.__globals__ is vars(module)]
    del _marked[marked:]
    return found


@contextmanager
def _folder_on_path(folder: str) -> Any:
    """A file may import what stands beside it."""
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


# --- in the worker
# ----------------------------------------------------------------------------------------------------------
def handler(file: str, source: str) -> Callable[..., Verdict]:
    """What judges a job of a file's tasks."""
    functions = {own.task: own.function for own in _execute(file, source)}
    sys.path.append(str(Path(file).parent))  # for imports within functions

    def judge(task: str, answer: dict[str, Any], reply: str) -> Verdict:
        return _verdict(functions[task](answer, reply))

    return judge


def _verdict(value: Any) -> Verdict:
    if value is None:
        return Verdict(False, None, "no_answer", "the verifier found no answer")
    if type(value).__name__ in ("bool", "bool_"):  # numpy's too
        return Verdict(bool(value), None, "ok", "")
    if not isinstance(value, Verdict):
        raise TypeError(f"a verifier returns True, False, None or a Verdict, not {type(value).__name__}")
    sound = (
        isinstance(value.correct, bool)
        and isinstance(value.extracted, (str, type(None)))
        and isinstance(value.detail, str)
    )
    if not sound or value.status not in STATUSES or (value.correct and value.status != "ok"):
        raise TypeError(f"not a sound Verdict: {value!r}")
    return value

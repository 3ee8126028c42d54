"""The user's own tasks: a Python file with functions marked `@verifier`.

    from smopd.verify import verifier

    @verifier("units", answer=("value", "unit"))
    def units(answer, reply):
        return f"{answer['value']} {answer['unit']}" in reply

A function gets the example's answer and the reply without its think blocks; it returns True or False (1 or
0), None if the reply holds no answer, or a `Verdict`. It runs in a worker process, with the source the file
had when it was loaded, and is not sandboxed. Functions without source that a worker could run are called in
this process (`register_in_process`), one at a time and without limits.
"""

import linecache
import re
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from smopd.errors import UserError
from smopd.files import read_python
from smopd.verify import tasks, workers
from smopd.verify.task import Judged, Task
from smopd.verify.verdict import STATUSES, Verdict
from smopd.verify.worker import line_in, said

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class _Marked:
    task: str
    function: Function
    answer: tuple[str, ...]  # fields
    timeout: float
    memory_mb: int

    def place(self, file: str) -> str:
        return f"{file}, line {self.function.__code__.co_firstlineno}"

    def job(self, kind: workers.Kind, example: Judged, reply: str) -> workers.Job:
        call = {"task": self.task, "answer": dict(example.answer), "reply": reply}
        return workers.Job(kind, call, self.timeout, self.memory_mb)

    def call(self, example: Judged, reply: str) -> Verdict:
        with _one_at_a_time:
            try:
                return _verdict(self.function(dict(example.answer), reply))
            except Exception as error:
                return Verdict(False, None, "error", said(error, self.function.__code__.co_filename))


_marked: list[_Marked] = []  # every function marked in this process, in order
_loaded: dict[str, tuple[_Marked, workers.Kind]] = {}  # by task
_here: dict[str, list[_Marked]] = {}  # by file: functions called in this process
_one_at_a_time = threading.Lock()


def verifier(
    task: str, *, answer: str | Sequence[str] = (), timeout: float = 5.0, memory_mb: int = workers.MEMORY_MB
) -> Callable[[F], F]:
    """Mark a function, unchanged, as the verifier of a task whose answers hold the fields `answer`."""
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
        _marked.append(_Marked(task, function, fields, float(timeout), memory_mb))
        return function

    return mark


def marks(function: Function) -> dict[str, Any] | None:
    """Return the arguments of the last `@verifier` on this function; None if it is not marked."""
    mark = next((mark for mark in reversed(_marked) if mark.function is function), None)
    return {key: getattr(mark, key) for key in ("task", "answer", "timeout", "memory_mb")} if mark else None


def register_in_process(file: Path, functions: Mapping[str, Function], fields: Sequence[str]) -> None:
    """Judge the tasks of a file by these functions in this process, whatever the file contains."""
    marked = [_Marked(task, function, tuple(fields), 0, 0) for task, function in functions.items()]
    _here[str(file.expanduser().resolve())] = marked


def loaded_tasks() -> list[str]:
    return list(_loaded)


def tasks_in(source: str) -> list[str]:
    """Execute a source text and return the tasks it has verifiers for; its exceptions pass through."""
    return [marked.task for marked in _execute("verifier.py", source)]


def load_verifiers(paths: Sequence[str | Path]) -> None:
    """Register the tasks of these files, rereading loaded ones; a UserError leaves all as it was."""
    new: dict[str, tuple[_Marked, workers.Kind]] = {}
    files = {str(Path(path).expanduser().resolve()): str(path) for path in paths}
    for file, name in files.items():
        source = read_python(Path(file), name, "file of verifiers")
        kind = workers.Kind(__name__, file, source)
        for marked in _here.get(file) or _run(file, source, name):
            task, here = marked.task, marked.place(name)
            if task in tasks.built_in():
                raise UserError(f"{here}: task {task!r} is one of smopd's own; choose another name")
            before = new.get(task) or _loaded.get(task)
            if before and (task in new or before[1].file not in files):
                there = f"has a verifier already ({before[0].place(before[1].file)})"
                raise UserError(f"{here}: task {task!r} {there}; give one of them another name")
            new[task] = marked, kind
    unload_verifiers(set(files), {kind for _, kind in new.values()})
    for task, (marked, kind) in new.items():
        _loaded[task] = marked, kind
        # For a reply, a job of a worker or a call in this process that waits its turn.
        job, call = partial(marked.job, kind), partial(partial, marked.call)
        tasks.register(Task(task, marked.answer, judge=call if kind.file in _here else job))


def unload_verifiers(files: Set[str] | None = None, kept: Set[workers.Kind] = frozenset()) -> None:
    """Remove the tasks of some or all files, and end their processes except for the kinds in `kept`."""
    for task, (_, kind) in list(_loaded.items()):
        if files is None or kind.file in files:
            del _loaded[task]
            tasks.forget(task)
            if kind not in kept:
                workers.close(kind)


def _run(file: str, source: str, name: str) -> list[_Marked]:
    try:
        marked = _execute(file, source)
    except (Exception, SystemExit) as error:
        line, problem = line_in(error, file) or 1, f"{type(error).__name__}: {error}"
        if isinstance(error, SyntaxError) and error.filename == file:
            line, problem = error.lineno or 1, f"not valid Python: {error.msg}"
        elif isinstance(error, SyntaxError):
            problem = f"{error.msg} ({error.filename}, line {error.lineno})"
        raise UserError(f"{name}, line {line}: {problem}") from None
    if not marked:
        remedy = "(from smopd.verify import verifier)"
        raise UserError(f"{name}: holds no function marked with @verifier {remedy}")
    return marked


def _execute(file: str, source: str) -> list[_Marked]:
    name = "smopd_verifiers_" + re.sub(r"\W", "_", Path(file).stem)
    module, before, first = types.ModuleType(name), sys.modules.get(name), len(_marked)
    module.__file__, folder = file, str(Path(file).parent)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file  # for error messages
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.append(folder)  # a file may import its neighbours
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    finally:
        sys.path.remove(folder)
    here = [marked for marked in _marked[first:] if marked.function.__globals__ is vars(module)]
    del _marked[first:]
    return here


# --- in the worker
def worker(file: str, source: str) -> Callable[..., Verdict]:
    functions = {marked.task: marked.function for marked in _execute(file, source)}
    sys.path.append(str(Path(file).parent))  # for imports within functions
    return lambda task, answer, reply: _verdict(functions[task](answer, reply))


def _verdict(value: Any) -> Verdict:
    if value is None:
        return Verdict(False, None, "no_answer", "the verifier found no answer")
    if getattr(value, "ndim", None) == 0:  # a scalar of numpy or torch
        value = value.item()
    if isinstance(value, bool | int | float) and value in (0, 1):
        return Verdict(bool(value), None, "ok", "")
    if not isinstance(value, Verdict):
        expected = "True or False (1 or 0), None where the reply holds no answer, or a Verdict"
        raise TypeError(f"the verifier returned {value!r:.80} ({type(value).__name__}); expected {expected}")
    texts = isinstance(value.extracted, (str, type(None))) and isinstance(value.detail, str)
    sound = texts and isinstance(value.correct, bool) and value.status in STATUSES
    if not sound or (value.correct and value.status != "ok"):
        raise TypeError(f"not a sound Verdict: {value!r}")
    return value

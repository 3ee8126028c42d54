"""Inside a worker process: read jobs from a pipe and answer each with a verdict, until the pipe closes.

Only the job's module is imported. `workers.py` enforces its time limit; an alarm ends an orphaned process.
"""

import contextlib
import io
import json
import linecache
import os
import resource
import signal
import sys
import traceback
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.verify.verdict import Verdict
from smopd.verify.wire import receive, send

_PRINTED = 1000  # bytes of a job's output that go back with its verdict
_ORPHAN = 30.0  # seconds past a time limit after which the parent must be gone


class _Printed(io.BytesIO):
    def fileno(self) -> int:
        return 1  # the null device, for code that needs a real file

    def write(self, data: Any) -> int:
        super().write(bytes(data)[: max(0, _PRINTED - self.tell())])
        return len(data)


def main() -> None:
    jobs, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    start = json.loads(receive(jobs))
    try:
        make = import_module(start["module"]).worker
        judge = make(start["file"], start["source"]) if start["file"] else make()
    except (Exception, SystemExit) as error:
        send(answers, json.dumps({"failed": said(error, start["file"])}).encode())
        return
    printed = _Printed()
    sys.stdout = sys.stderr = io.TextIOWrapper(printed, "utf-8", "replace", write_through=True)
    taken = 0  # bytes of address space in use: large libraries reserve more than they touch
    with contextlib.suppress(OSError, ValueError, IndexError):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    send(answers, b'{"ready": true}')
    while True:
        try:
            job = json.loads(receive(jobs))
        except (EOFError, OSError):
            os._exit(0)
        with contextlib.suppress(ValueError, OSError):
            most = resource.getrlimit(resource.RLIMIT_AS)[1]
            memory = taken + job["memory"]  # beyond this, Python raises a MemoryError
            memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
            resource.setrlimit(resource.RLIMIT_AS, (memory, most))
        signal.setitimer(signal.ITIMER_REAL, job["timeout"] + _ORPHAN)
        answer: dict[str, Any] = {"number": job["number"]}
        try:
            answer["verdict"] = asdict(judge(**job["call"]))
        except UserError as error:
            answer["user_error"] = str(error)
        except BaseException as error:
            answer["verdict"] = asdict(Verdict(False, None, "error", said(error, start["file"])))
        signal.setitimer(signal.ITIMER_REAL, 0)
        with contextlib.suppress(ValueError):  # it may have been closed
            answer["printed"] = printed.getvalue().decode("utf-8", "replace")
            printed.seek(0)
            printed.truncate()
        send(answers, json.dumps(answer).encode())


def said(error: BaseException, file: str) -> str:
    """Describe an exception in one line, with the deepest line of the user's file in its traceback."""
    where = ""
    if line := line_in(error, file):
        code = linecache.getline(file, line).strip()
        where = f" ({Path(file).name}, line {line}{': ' if code else ''}{code[:100]})"
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}: {text[:500]}{where}"


def line_in(error: BaseException, file: str) -> int:
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in reversed([*frames]) if frame.f_code.co_filename == file), 0)

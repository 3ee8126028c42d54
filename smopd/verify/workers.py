"""A pool of warm processes for verdicts that may hang, crash or eat memory.

This is the parent's side; `worker.py` runs in the process: a fresh interpreter in its own session, which
judges one job at a time and is killed with its process group past the time limit. It is no protection against
malice: model-written programs go to `smopd.verify.sandbox`, whose workers are also processes of this pool.
"""

import atexit
import collections
import contextlib
import json
import logging
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from smopd.errors import UserError
from smopd.formatting import visible
from smopd.machine import cpu_cores
from smopd.verify.verdict import Verdict
from smopd.verify.wire import receive, send

K = TypeVar("K")
P = TypeVar("P", bound="Process")
log = logging.getLogger("smopd")
MEMORY_MB = 2048  # per job, beyond what its process uses when it is ready
GRACE = 2.0  # seconds past a verifier's own time limit for its verdict to arrive
_START_LIMIT = 120.0  # seconds to import what the jobs need
_INSIDE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import smopd.verify.worker as w; w.main()"


@dataclass(frozen=True)
class Kind:
    """What a process is started for: `worker()` of a module returns the function that judges a job."""

    module: str
    file: str = ""  # of the user's verifiers, passed to `worker` with its source
    source: str = ""


@dataclass(frozen=True)
class Job:
    """One call of a verifier in a worker process, with its limits."""

    kind: Kind
    call: Mapping[str, Any]
    timeout: float
    memory_mb: int = MEMORY_MB
    extracted: str | None = None  # for the verdict on a lost job
    group: str = ""  # jobs of one group go to the same process


def width() -> int:
    """Return how many jobs run at once."""
    return max(2, cpu_cores())


idle: dict[Any, list[Any]] = collections.defaultdict(list)  # idle processes by kind
places = threading.BoundedSemaphore(width())  # one for each busy process
_shown: dict[tuple[Kind, str], Job] = {}  # by verifier, the job whose output was shown


def ask_all(jobs: Sequence[Job]) -> list[Verdict]:
    """Run jobs of one kind in turn, in the same process as long as it lives."""
    worker: _Worker | None = None
    verdicts: list[Verdict] = []
    with places:
        try:
            for job in jobs:
                try:
                    worker = worker or take(job.kind, _Worker)
                except OSError as error:
                    why = f"the verifier's process did not start: {error}"
                    verdicts.append(Verdict(False, job.extracted, "error", why))
                    continue
                verdicts.append(worker.judge(job))
                worker = None if worker.ended else worker
        finally:
            if worker and worker.busy:
                worker.end()  # Ctrl-C: a late answer would be taken for the next job's
            elif worker:
                idle[worker.kind].append(worker)
    return verdicts


def take(kind: K, start: Callable[[K], P]) -> P:
    while True:
        try:
            process: P = idle[kind].pop()
        except IndexError:
            return start(kind)
        if process.process.poll() is None:
            return process
        process.end()  # died while idle


class Process:
    """A process, leading its own process group, that answers one message at a time."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> None:
        self.busy = self.late = self.ended = False
        # A file until `end`: a pipe that nobody reads would block when full.
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipes: dict[str, Any] = {"stdin": -1, "stdout": -1, "stderr": self.errors, "bufsize": 0}
        env = {**env, "PYTHONHASHSEED": "0"}  # so that no verdict depends on the order of a set
        self.process = subprocess.Popen(command, **pipes, env=env, cwd=cwd, start_new_session=True)
        self.pipes = [pipe for pipe in (self.process.stdin, self.process.stdout) if pipe]

    def exchange(self, message: bytes, limit: float, more: bytes = b"") -> dict[str, Any] | None:
        """Send a message and `more`; return the answer, or None, when `late` tells if time ran out."""
        to, back = (pipe.fileno() for pipe in self.pipes)
        deadline, self.busy = time.monotonic() + limit, True
        try:
            send(to, message, more, partial(_await, to, select.POLLOUT, deadline))
            answer = json.loads(receive(back, wait=partial(_await, back, select.POLLIN, deadline)))
        except (OSError, EOFError, ValueError, struct.error) as error:
            self.late = isinstance(error, TimeoutError)
            return None
        self.busy = not isinstance(answer, dict)
        return answer if isinstance(answer, dict) else None

    def end(self) -> str:
        """Kill the process and its group; return how it ended by itself and its last line of stderr."""
        if self.ended:
            return ""
        self.ended = True
        if not self.busy:
            self.pipes[0].close()  # an idle process then ends by itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0 if self.late else 0.5)  # its pipe closes a moment before it is gone
        code = self.process.returncode
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in self.pipes:
            pipe.close()
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        last = self.errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        self.errors.close()
        ending = "it closed its pipe" if code is None else f"exit code {code}"
        ending = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else ending
        return f"{ending}{': ' if last else ''}{last}"


class _Worker(Process):
    def __init__(self, kind: Kind) -> None:
        self.kind, self.number = kind, 0
        path = json.dumps([os.path.abspath(place) for place in sys.path])
        command = [sys.executable, "-P", "-X", "utf8", "-c", _INSIDE, path]
        super().__init__(command, {"OMP_NUM_THREADS": "1", **os.environ})
        ready = self.exchange(json.dumps(asdict(kind)).encode(), _START_LIMIT)
        if ready is None or "failed" in ready:
            ending = self.end()
            ending = f"not ready after {_START_LIMIT:g} s" if self.late else ending
            raise ChildProcessError(ready["failed"] if ready else ending)

    def judge(self, job: Job) -> Verdict:
        try:
            limits = {"timeout": job.timeout, "memory": job.memory_mb << 20}
            message = json.dumps({"call": dict(job.call), "number": self.number, **limits}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return Verdict(False, job.extracted, "error", f"the answer is no plain JSON: {error}")
        answer = self.exchange(message, job.timeout)
        # The number tells an answer from anything that a user's verifier wrote to the pipe.
        if answer is None or answer.get("number") != self.number:
            late, ending = self.late, self.end()
            if late:
                return Verdict(False, job.extracted, "timeout", f"no verdict within {job.timeout:g} s")
            return Verdict(False, job.extracted, "error", f"the verifier's process was lost: {ending}")
        self.number += 1
        _show_printed(job, answer.get("printed"))
        if "user_error" in answer:
            raise UserError(answer["user_error"])
        return Verdict(**answer["verdict"])


def _show_printed(job: Job, text: Any) -> None:
    """Show what a user's verifier prints, once: for the first reply for which it prints anything."""
    name = str(job.call.get("task"))
    if job.kind.file and text and _shown.setdefault((job.kind, name), job) is job:
        lines = "".join(f"\n  {name}: {line}" for line in visible(str(text)).splitlines()[:10])
        log.warning("the verifier %s prints; its first lines, shown once:%s", name, lines)


def _await(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def close(kind: Kind | None = None) -> None:
    for chosen in [kind] if kind else list(idle):
        for process in idle.pop(chosen, []):
            process.end()


def _forget() -> None:
    """After a fork, drop the parent's processes, and places held by threads that no longer exist."""
    global places
    idle.clear()
    places = threading.BoundedSemaphore(width())


atexit.register(close)
os.register_at_fork(after_in_child=_forget)

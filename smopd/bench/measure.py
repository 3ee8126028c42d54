"""The parent's side of a benchmark: every repetition of every variant in a fresh child process, one thread
each.

Variants are interleaved (repetition 1 of each, then repetition 2 of each, ...), so that load which comes and
goes on the machine hits all of them alike. It leaves out what is measured inside the child
(`smopd.bench.child`) and imports no torch.
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from smopd.cli.progress import Progress
from smopd.errors import UserError

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True)
class Work:
    """What a child does: `warm_up` on a small input, then `run`, the only part that is measured. `facts`
    reads its result.
    """

    warm_up: Callable[[], Any]
    run: Callable[[], Any]
    facts: Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One row of a benchmark: a name for the reader, and what the child needs to know."""

    name: str
    bench: str
    variant: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """CPU seconds (median, then smallest and largest) and extra peak memory (median) of one case over its
    repetitions.
    """

    name: str
    seconds: float
    spread: tuple[float, float]
    peak_mb: float
    system_seconds: float = (
        0.0  # the part of the seconds spent in the kernel (median): handing out memory, mostly
    )
    memory: str = ""  # how the peak was read
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of this row."""
        return {"name": self.name, "seconds": self.seconds, "spread": list(self.spread), "system_seconds": self.system_seconds,
                "peak_mb": self.peak_mb, "memory": self.memory, **self.facts}  # fmt: skip


def measure(cases: Sequence[Case], reps: int, what: str) -> list[Result]:
    """Run all cases `reps` times, interleaved; one Result a case, in order."""
    found: list[list[dict[str, Any]]] = [[] for _ in cases]
    with Progress(what, reps * len(cases)) as progress:
        for rep in range(reps):
            for number, case in enumerate(cases):
                found[number].append(run_child(case))
                progress.update(
                    rep * len(cases) + number + 1, f"{case.name} {found[number][-1]['seconds']:.2f} s"
                )
    return [_result(case.name, runs) for case, runs in zip(cases, found, strict=True)]


def run_child(case: Case) -> dict[str, Any]:
    """One repetition in a process of its own. A child that dies is a UserError with what it wrote on standard
    error.
    """
    request = {"bench": case.bench, "variant": case.variant, "settings": dict(case.settings)}
    child = subprocess.run(
        [sys.executable, "-m", "smopd.bench.child"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
        check=False,
    )
    if child.returncode == UserError.exit_code:  # the child understood what the user has to mend and said so
        raise UserError(
            child.stderr.strip().splitlines()[-1].removeprefix("error: ")
            if child.stderr.strip()
            else "unknown error"
        )
    if child.returncode:
        ended = f"exit code {child.returncode}"
        if child.returncode < 0:
            ended = f"signal {signal.Signals(-child.returncode).name}"
            ended += " (out of memory?)" if child.returncode == -signal.SIGKILL else ""
        raise UserError(
            f"bench {case.bench}, {case.name}: the child process died with {ended}:\n{child.stderr.strip()}"
        )
    try:
        answer = json.loads(child.stdout)
    except json.JSONDecodeError:
        raise UserError(
            f"bench {case.bench}, {case.name}: the child gave no result:\n{child.stdout}{child.stderr}"
        ) from None
    assert isinstance(answer, dict)
    return answer


def _result(name: str, runs: list[dict[str, Any]]) -> Result:
    seconds = [run["seconds"] for run in runs]
    return Result(
        name,
        seconds=median(seconds),
        spread=(min(seconds), max(seconds)),
        peak_mb=median(run["peak_mb"] for run in runs),
        system_seconds=median(run["system_seconds"] for run in runs),
        memory=runs[0]["memory"],
        facts=runs[0]["facts"],  # the same in every repetition: inputs are derived from seeds
    )


def ratios(ours: Result, others: Sequence[Result]) -> dict[str, dict[str, float | None]]:
    """What share of each other row's CPU time and extra memory ours takes; None where the other's was too
    small to read.
    """
    return {
        other.name: {
            "seconds": ours.seconds / other.seconds if other.seconds else None,
            "peak_mb": ours.peak_mb / other.peak_mb if other.peak_mb else None,
        }
        for other in others
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    info = Path("/proc/cpuinfo")
    name = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return {
        "cpu": name.group(1) if name else platform.processor() or platform.machine(),
        "threads": 1,
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }

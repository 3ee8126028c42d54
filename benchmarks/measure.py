"""The parent's side of a benchmark: every repetition of every variant in a fresh process of one thread."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from smopd.errors import UserError
from smopd.machine import describe_cpu
from smopd.tracking import Track, quiet

ROOT = Path(__file__).parents[1]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Row = dict[str, Any]
Against = Mapping[str, Sequence[str]]  # a variant of ours, and those it is compared with
# What a child measures is the CPU, also on a machine with a GPU.
CHILD_ENVIRONMENT = {
    **dict.fromkeys(THREADS, "1"),
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True)
class Work:
    """What a child does: `warm_up` on a small input, `run`, which is measured, `facts` about its result."""

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


def measure(cases: Sequence[Case], reps: int, track: Track = quiet) -> list[Row]:
    """Run all cases `reps` times, interleaved; one row a case, in order."""
    runs: list[list[Row]] = [[] for _ in cases]
    with track(f"bench {cases[0].bench}", reps * len(cases)) as update:
        for done in range(reps * len(cases)):
            number = done % len(cases)
            run = run_child(cases[number])
            runs[number].append(run)
            update(done + 1, f"{cases[number].name} {run['seconds']:.2f} s")
    return [_row(case.name, repeated) for case, repeated in zip(cases, runs, strict=True)]


def run_child(case: Case) -> Row:
    """One repetition in a process of its own. A child that dies is a UserError with its standard error."""
    request = json.dumps({"bench": case.bench, "variant": case.variant, "settings": dict(case.settings)})
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "benchmarks.child"]
    env = {**os.environ, **CHILD_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(paths)}
    child = subprocess.run(command, input=request, capture_output=True, text=True, env=env, check=False)
    stderr = child.stderr.strip()
    if child.returncode == UserError.exit_code:  # the child says what the user has to mend
        raise UserError(stderr.splitlines()[-1].removeprefix("error: ") if stderr else "unknown error")
    if child.returncode:
        ended = f"exit code {child.returncode}"
        if child.returncode < 0:
            ended = f"signal {signal.Signals(-child.returncode).name}"
            ended += " (out of memory?)" if child.returncode == -signal.SIGKILL else ""
        raise UserError(f"bench {case.bench}, {case.name}: the child process died with {ended}:\n{stderr}")
    try:
        answer: Row = json.loads(child.stdout)
    except json.JSONDecodeError:
        what = f"bench {case.bench}, {case.name}: the child gave no result"
        raise UserError(f"{what}:\n{child.stdout}{child.stderr}") from None
    return answer


def _row(name: str, runs: list[Row]) -> Row:
    seconds, system, peaks = ([run[key] for run in runs] for key in ("seconds", "system_seconds", "peak_mb"))
    time = {"name": name, "seconds": median(seconds), "spread": [min(seconds), max(seconds)]}
    memory = {"peak_mb": median(peaks), "memory": runs[0]["memory"]}  # and how the peak was read
    # Facts are the same in every repetition, since inputs are derived from seeds; all but times.
    facts = dict(runs[0]["facts"])
    for key in (key for key in facts if key.endswith("_seconds")):
        facts[key] = median(run["facts"][key] for run in runs)
    return {**time, "system_seconds": median(system), **memory, **facts}


def report_of(
    bench: str, settings: Any, reps: int, against: Against, track: Track, more: Sequence[Case] = ()
) -> dict[str, Any]:
    """Measure and report the variants in `against`; `more`: further rows."""
    names = [name for ours, others in against.items() for name in (ours, *others)]
    cases = [Case(name, bench, name, asdict(settings)) for name in names]
    rows = measure([*cases, *more], reps, track)
    named = {row["name"]: row for row in rows}
    compared = {name: ratios(named[name], [named[o] for o in others]) for name, others in against.items()}
    run = {"bench": bench, "machine": describe_cpu(1), "settings": asdict(settings), "reps": reps}
    return run | {"results": rows, "ratios": compared, "notes": []}


def ratios(ours: Row, others: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """Our share of each other row's CPU time and extra memory; None where that was too small to read."""
    keys = ("seconds", "peak_mb")
    return {row["name"]: {key: ours[key] / row[key] if row[key] else None for key in keys} for row in others}

"""Kill a training run at random moments, let it go on each time, and compare what it leaves with an
undisturbed run.

    PYTHONPATH=tests python -m support.kill_run --kills 20 --out /tmp/kills

A third of the kills each is aimed at the start (imports, loading, restoring), at a step (rollout, scoring,
update) and at the moment a checkpoint is half written. The comparison is byte by byte, without timings,
which no seed decides. Exit code 1 if one byte differs, or if a start that nobody killed fails.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

from support.runs import COMMAND, set_words

from smopd.files import read_jsonl

UNCOMPARED = ("timings.jsonl", "starts.jsonl", ".lock")  # one has a row for every start
AIMS = ("step", "checkpoint", "start")


def command(out: Path, steps: int, every: int, more: list[str]) -> list[str]:
    length = (f"train.steps={steps}", f"train.checkpoint_every={every}")
    settings = set_words([*length, "train.rollouts=4", "optim.lr=1e-3", *more])
    return [*COMMAND, "train", "pocket", "--out", str(out), *settings]


class Attempt:
    """One start of the run, with what it says kept in a file."""

    def __init__(self, arguments: list[str], run: Path, log: Path) -> None:
        self.run, self.log, self.began = run, log, time.monotonic()
        self.fresh = not (run / "metrics.jsonl").exists() and not list(run.glob("checkpoints/step-*"))
        with log.open("wb") as file:
            env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            self.process = subprocess.Popen(arguments, stdout=file, stderr=file, env=env)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def until(self, happened: Callable[[], bool], pause: float) -> bool:
        """Wait for something; False if the process ends first."""
        while self.process.poll() is None:
            if happened():
                return True
            time.sleep(pause)
        return False

    def training(self) -> bool:
        """Whether it has loaded and restored everything, and swept away what the last kill left."""
        if self.fresh:
            return (self.run / "config.toml").exists()
        return b"continuing" in self.log.read_bytes()

    def kill(self) -> bool:
        """True if it was alive."""
        alive = self.process.poll() is None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return alive


def wait_and_kill(attempt: Attempt, aim: str, random: Random, start: float, step: float, every: int) -> bool:
    """Kill at the moment aimed at; False if the run ended before it came."""
    if aim == "start":
        delay = random.uniform(0, start)
        attempt.until(lambda: attempt.seconds >= delay, 0.01)
        return attempt.kill()
    if not attempt.until(attempt.training, 0.05):
        return False
    folder = attempt.run / "checkpoints"
    if aim == "step":  # after a new checkpoint, so that the run gets somewhere
        had, delay = set(folder.glob("step-*")), random.uniform(0, every) * step
        came = attempt.until(lambda: bool(set(folder.glob("step-*")) - had), 0.01)
    else:
        delay = random.uniform(0, 0.06)
        came = attempt.until(lambda: any(folder.glob(".partial-*")), 0.0005)
    if not came:
        return False
    moment = time.monotonic() + delay
    return attempt.until(lambda: time.monotonic() >= moment, 0.0005) and attempt.kill()


def differences(a: Path, b: Path) -> list[str]:
    """Files that only one run has, or that are not the same in both."""
    ours, theirs = ({p.relative_to(run): p for p in run.rglob("*") if p.is_file()} for run in (a, b))
    names = sorted({*ours, *theirs} - {Path(name) for name in UNCOMPARED})
    problems = []
    for name in names:
        if name not in ours or name not in theirs:
            problems.append(f"{name}: only in {a.name if name in ours else b.name}")
        elif ours[name].read_bytes() != theirs[name].read_bytes():
            problems.append(f"{name}: not the same bytes")
    return problems


def state(run: Path) -> str:
    """What a kill left behind, in a few words."""
    newest = max((p.name for p in run.glob("checkpoints/step-*")), default="no checkpoint")
    rows = len(read_jsonl(run / "metrics.jsonl"))
    left = [p.name for p in run.glob("checkpoints/.*")] + [p.name for p in run.rglob("*.partial")]
    return f"{rows:>4} rows  {newest:<13}  {', '.join(left)}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True, help="folder for both runs; must not exist")
    parser.add_argument("--steps", type=int, help="default: enough for the kills")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="further settings, as of smopd train")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True)
    steps, random = options.steps or options.kills + 8, Random(options.seed)
    straight, killed = options.out / "straight", options.out / "killed"

    settings = (steps, options.every, options.set)
    first = Attempt(command(straight, *settings), straight, options.out / "straight.log")
    if first.process.wait():
        print(f"the undisturbed run failed:\n{first.log.read_text()}")
        return 1
    step = median(row["seconds/step"] for row in read_jsonl(straight / "timings.jsonl"))
    start = max(1.0, first.seconds - step * steps)
    print(
        f"undisturbed: {steps} steps, {first.seconds:.0f} s ({start:.1f} s to start, {step:.2f} s a step)",
        flush=True,
    )

    for number in range(1, 1000):
        aim = AIMS[(number - 1) % len(AIMS)] if number <= options.kills else "end"
        attempt = Attempt(command(killed, *settings), killed, options.out / f"killed-{number:02d}.log")
        if aim != "end" and wait_and_kill(attempt, aim, random, start, step, options.every):
            print(f"kill {number:>2}  {aim:<10}  {attempt.seconds:>5.1f} s  {state(killed)}", flush=True)
            continue
        if attempt.process.wait():
            print(f"start {number}, which nobody killed, failed:\n{attempt.log.read_text()}")
            return 1
        print(f"end      after {number - 1} kills {attempt.seconds:>5.1f} s  {state(killed)}")
        break

    problems = differences(straight, killed)
    compared = [p for p in killed.rglob("*") if p.is_file() and p.name not in UNCOMPARED]
    print("\n".join(problems) or f"the same bytes in {len(compared)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

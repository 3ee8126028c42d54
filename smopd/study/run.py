"""Run the cells of a study: the commands `smopd train` and `smopd eval` in processes, several at a time.

    OUT/cells/NAME/           an ordinary run folder, its evaluation in eval/trained
    OUT/configs/NAME.toml     its settings
    OUT/base/NAME/eval/       the untrained model on the same items
    OUT/logs/NAME.log         what it printed
    OUT/studies/STUDY/        study.json, status.json, results.json, report/

The folders decide what is left to do, so a study can be killed and resumed, and cells can run elsewhere.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from smopd.config_io import to_toml
from smopd.errors import UserError
from smopd.files import check_shape, locked, read_json, require_writable, write_json, write_text
from smopd.machine import cpu_cores
from smopd.runs.evaluations import TRAINED, evaluation_folder
from smopd.runs.layout import CONFIG, EVAL, METRICS
from smopd.study.plan import PlannedCell, Study, parse_study
from smopd.training.interrupt import interruptible

REPORT_EVERY = 2.0  # seconds between reports, which read files of every cell
EVALUATION_SHARE = 0.3  # assumed share of a cell's time


@dataclass
class StudyJob:
    """A cell, or the evaluation of an untrained model, as commands to run one after the other."""

    name: str
    label: str
    folder: Path
    finished: Path  # exists when the job is done
    commands: list[list[str]]
    steps: int = 0
    attempts: int = 0
    seconds: float = 0.0
    error: str = ""
    progress: float = 0.0
    began_at: float = 0.0  # progress made before this attempt

    @property
    def done(self) -> bool:
        return self.finished.exists()


@dataclass
class StudyFolder:
    path: Path
    study: Study

    @property
    def study_path(self) -> Path:
        return self.path / "studies" / self.study.name

    def cell(self, cell: PlannedCell) -> Path:
        """The cell's run folder, whichever study created it."""
        cells = self.path / "cells"
        return min(cells.glob(f"*-{cell.key}"), default=cells / cell.folder)

    def base(self, model: str) -> Path:
        return self.path / "base" / self.study.base_folder(model)

    def jobs(self) -> list[StudyJob]:
        jobs = []
        for model in self.study.models:
            folder = self.base(model.name)
            evaluate = ["eval", str(folder / CONFIG), "--out", str(folder / EVAL)]
            names = f"base-{folder.name}", f"{model.name}, untrained"
            jobs.append(StudyJob(*names, folder, folder / EVAL / "summary.json", [evaluate]))
        for cell in self.study.cells:
            folder, steps = self.cell(cell), cell.config.train.steps
            evaluation = evaluation_folder(folder, TRAINED)
            train = ["train", str(self.path / "configs" / f"{cell.folder}.toml"), "--out", str(folder)]
            evaluate = ["eval", str(folder), "--no-base", "--out", str(evaluation)]
            summary, commands = evaluation / "summary.json", [train, evaluate]
            jobs.append(StudyJob(cell.folder, cell.label, folder, summary, commands, steps))
        return jobs

    def prepare(self) -> None:
        require_writable(self.study_path)
        try:
            write_json(self.study_path / "study.json", self.study.tree)
            for model in self.study.models:
                base = self.base(model.name)
                # Keep the config if another study in this folder has evaluated the model with it.
                if not (base / EVAL / "evaluation.json").exists():
                    write_text(base / CONFIG, to_toml(self.study.base_config(model.name)))
            for cell in self.study.cells:
                write_text(self.path / "configs" / f"{cell.folder}.toml", to_toml(cell.config))
        except OSError as error:
            raise UserError(f"{error.filename or self.path}: cannot be written: {error.strerror}") from None

    def lock(self) -> AbstractContextManager[object]:
        """Allow one scheduler per study; another one would start the same cells."""
        require_writable(self.study_path)
        return locked(self.study_path / ".lock", "runs this study")

    def save_status(self, jobs: list[StudyJob]) -> None:
        rows = {}
        for job in jobs:
            state = "done" if job.done else "failed" if job.error else "open"
            known = {"attempts": job.attempts, "seconds": round(job.seconds, 1), "error": job.error}
            rows[job.name] = {"cell": job.label, "state": state, **known}
        write_json(self.study_path / "status.json", rows)


def study_folders(path: Path) -> list[StudyFolder]:
    """The studies that were run in a folder, or the one study whose own folder it is."""
    folders = []
    for file in sorted(path.glob("study.json")) or sorted(path.glob("studies/*/study.json")):
        check_shape(tree := read_json(file), dict, str(file))
        folders.append(StudyFolder(file.parents[2], parse_study(tree, str(file))))
    return folders


def command_lines(jobs: list[StudyJob]) -> list[str]:
    """The unfinished jobs as shell commands, one line each, for a cluster's scheduler."""
    waiting = (job.commands for job in jobs if not job.done)
    return [" && ".join(shlex.join(["smopd", *command]) for command in commands) for commands in waiting]


class Scheduler:
    """Runs jobs, at most `width` at a time, each pinned to one of the visible GPUs."""

    def __init__(self, folder: StudyFolder, jobs: list[StudyJob], width: int, retries: int) -> None:
        self.folder, self.jobs, self.width, self.retries = folder, jobs, width, retries
        self.devices = visible_devices() if width > 1 else []
        # By slot: the job, its process, the remaining commands, the start time.
        self.running: dict[int, tuple[StudyJob, subprocess.Popen[bytes], list[list[str]], float]] = {}

    def run(self, report: Callable[["Scheduler"], None]) -> None:
        """Run until every job is done or failed. Ctrl-C interrupts running jobs, which save their state."""
        try:
            with interruptible():
                self._run_until_done(report)
        except KeyboardInterrupt:
            self._stop()
            raise
        finally:
            self.folder.save_status(self.jobs)

    def _run_until_done(self, report: Callable[["Scheduler"], None]) -> None:
        waiting, reported = [job for job in self.jobs if not job.done], 0.0
        while waiting or self.running:
            for slot in range(self.width):
                if slot not in self.running and waiting:
                    job = waiting.pop(0)
                    job.attempts, job.error, job.began_at = job.attempts + 1, "", _part(job)
                    self._launch(slot, job, list(job.commands), time.monotonic())
            time.sleep(0.2)
            waiting += [failed for slot in list(self.running) if (failed := self._look(slot))]
            if time.monotonic() - reported >= REPORT_EVERY:
                report(self)
                reported = time.monotonic()
        report(self)

    def _launch(self, slot: int, job: StudyJob, commands: list[list[str]], began: float) -> None:
        path, (command, *rest) = self.folder.path / "logs" / f"{job.name}.log", commands
        path.parent.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ)
        if self.devices:
            environment["CUDA_VISIBLE_DEVICES"] = self.devices[slot % len(self.devices)]
        if self.width > 1:
            environment.setdefault("OMP_NUM_THREADS", str(max(1, cpu_cores() // self.width)))
        with path.open("ab") as log:
            log.write(f"$ {shlex.join(['smopd', *command])}\n".encode())
            log.flush()
            # In a new session, a terminal's Ctrl-C reaches only the scheduler, which passes it on once.
            process = subprocess.Popen(
                [sys.executable, "-m", "smopd.cli", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
        self.running[slot] = (job, process, rest, began)

    def _look(self, slot: int) -> StudyJob | None:
        """Check a slot's process and start its job's next command; returns the job if it must be retried."""
        job, process, rest, began = self.running[slot]
        code = process.poll()
        if code is None:
            return None
        del self.running[slot]
        if code == 0 and rest:
            self._launch(slot, job, rest, began)
            return None
        job.seconds += time.monotonic() - began
        if code != 0 or not job.done:
            log = self.folder.path / "logs" / f"{job.name}.log"
            printed = log.read_text(encoding="utf-8", errors="replace").splitlines()
            lines = ["it printed nothing", *filter(str.strip, printed)]
            last = ([line for line in lines if line.startswith("error: ")] or lines)[-1]
            job.error = f"{last.removeprefix('error: ')[:300]} (exit code {code}; {log})"
        self.folder.save_status(self.jobs)
        # Wrong settings or files (2) need a fix; after any other failure a retry may succeed.
        return job if job.error and code != 2 and job.attempts <= self.retries else None

    def _stop(self) -> None:
        """Interrupt every process and wait; a second Ctrl-C kills them."""
        self._signal(signal.SIGINT)
        try:
            for _, process, _, _ in self.running.values():
                process.wait()
        except KeyboardInterrupt:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for _, process, _, _ in self.running.values():
            with suppress(ProcessLookupError):  # it has just ended
                if process.poll() is None:
                    os.killpg(process.pid, number)


def time_left(scheduler: Scheduler) -> float | None:
    """Seconds until the grid is done, estimated from the work so far; None before there is enough of it."""
    longest = max((job.steps for job in scheduler.jobs), default=0) or 1
    running = {id(job): began for job, _, _, began in scheduler.running.values()}
    worked = spent = ahead = 0.0
    for job in scheduler.jobs:
        weight = job.steps / longest if job.steps else EVALUATION_SHARE
        job.progress = 1.0 if job.done else max(job.progress, _part(job))
        if id(job) in running:
            worked += weight * (job.progress - job.began_at)
            spent += time.monotonic() - running[id(job)]
        elif job.done and job.attempts:
            worked += weight * (1 - job.began_at)
            spent += job.seconds
        if not job.error:
            ahead += weight * (1 - job.progress)
    return ahead * spent / worked / scheduler.width if worked > 0.02 else None


def _part(job: StudyJob) -> float:
    if not job.steps:
        return 0.0
    if (evaluation_folder(job.folder, TRAINED) / "conversations.jsonl").exists():
        return 1 - EVALUATION_SHARE / 2
    metrics = job.folder / METRICS
    steps = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    return (1 - EVALUATION_SHARE) * min(1.0, steps / job.steps)


def visible_devices() -> list[str]:
    """The GPUs for the cells, as CUDA_VISIBLE_DEVICES names them."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device for device in named.split(",") if device.strip()]
    import torch

    return [str(i) for i in range(torch.cuda.device_count())]


def _end_with_parent() -> None:
    """Interrupt the child when the scheduler is killed: orphans would keep their folders locked."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG

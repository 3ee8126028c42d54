"""A run is a folder. Everything in it is written whole, by one process at a time, and a run that was killed
finds what it needs.

    config.toml         the settings                       rollouts/       the conversations of each step
    metrics.jsonl       a row a step, no times in it       tokens/         on request, see tokens.py
    timings.jsonl       the seconds of each step           checkpoints/    see checkpoint.py
    evaluations.jsonl   accuracy while training            eval/           accuracy before and after training
                                                           report.html     from `smopd report`

It leaves out what a run does; it only knows where things stand and refuses a folder that belongs to something
else.
"""

import logging
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError

from smopd.config import MAY_CHANGE, Config, differences, load_config, to_toml
from smopd.errors import UserError
from smopd.files import Held, append_jsonl, jsonl, locked, read_jsonl, write_jsonl, write_text
from smopd.rollout.engine import SaveAdapter
from smopd.training import checkpoint, tokens

log = logging.getLogger("smopd")
LOCK = ".lock"
TIMES = "seconds/"


class RunFolder:
    """One run's files. Making the object only looks; `lock` and `begin` are the first to write."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        self._locked = False
        self._damaged: set[Path] = set()
        settled = path / "config.toml"
        if settled.exists():
            other = [
                line for line in differences(load_config(settled), config) if not line.startswith(MAY_CHANGE)
            ]
            if other:
                listed = "\n  ".join(other)
                raise UserError(
                    f"{path}: holds a run of another configuration; choose another --out or the same settings:\n  {listed}"
                )
        elif path.exists() and (
            not path.is_dir() or any(p.name not in (LOCK, "config.toml.partial") for p in path.iterdir())
        ):
            raise UserError(
                f"{path}: exists and is not a run folder (no config.toml); nothing was written, choose another --out"
            )

    def begin(self) -> None:
        """Make the folder with its config, once everything the run needs is known to be there."""
        if not (self.path / "config.toml").exists():
            with self._writing(self.path / "config.toml"):
                write_text(self.path / "config.toml", to_toml(self.config))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process works on a run: another is refused. May be taken again inside. A run not begun
        leaves no folder.
        """
        if self._locked:
            yield
            return
        made = [p for p in (self.path, *self.path.parents) if not p.exists()]
        with ExitStack() as stack:
            stack.callback(_remove_empty, made)
            try:
                with self._writing(self.path / LOCK):
                    works = stack.enter_context(locked(self.path / LOCK))
            except Held as other:
                raise UserError(
                    f"{self.path}: another process works on this run ({other.holder}); "
                    "wait for it, stop it, or choose another --out"
                ) from None
            if not works:
                log.warning(
                    "%s: this file system has no locks: do not start the same run twice at the same time",
                    self.path,
                )
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """A write that fails (full, read-only, over quota) says where, why, and what is safe."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            where = getattr(error, "filename", None) or path
            why = (
                (error.strerror or str(error))
                if isinstance(error, OSError)
                else str(error).rpartition("I/O error: ")[2]
            )
            sound = next((c for c in reversed(self.checkpoints()) if checkpoint.damage(c) is None), None)
            safe = (
                f"The last complete checkpoint (step {_step(sound)}) is intact: once this is mended, the same command continues."
                if sound
                else "No checkpoint is complete yet: once this is mended, the same command begins anew."
            )
            raise UserError(f"{where}: cannot be written: {why}.\n{safe}") from None

    @property
    def metrics_file(self) -> Path:
        """One JSON object a step."""
        return self.path / "metrics.jsonl"

    @property
    def timings_file(self) -> Path:
        """The seconds of each step, which no seed decides."""
        return self.path / "timings.jsonl"

    @property
    def evaluations_file(self) -> Path:
        """One JSON object an evaluation while training."""
        return self.path / "evaluations.jsonl"

    def metrics(self) -> list[dict[str, Any]]:
        """The rows written so far, without times."""
        return read_jsonl(self.metrics_file)

    def timings(self) -> list[dict[str, Any]]:
        """The seconds of the steps so far."""
        return read_jsonl(self.timings_file)

    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations recorded so far."""
        return read_jsonl(self.evaluations_file)

    def cut_metrics(self, step: int) -> None:
        """Go back to `step`: without rows of steps that will be repeated, and without what a crash left
        unfinished.
        """
        with self._writing(self.path):
            for file in (self.metrics_file, self.timings_file, self.evaluations_file):
                if file.exists():
                    kept = jsonl(row for row in read_jsonl(file) if row["step"] <= step)
                    if kept.encode() != file.read_bytes():
                        write_text(file, kept)
            for left in (
                p for name in ("", "rollouts", "tokens") for p in (self.path / name).glob("*.partial")
            ):
                left.unlink()
            checkpoint.sweep(self.path / "checkpoints")
        self.prune(
            self.config.train.keep_checkpoints, step
        )  # a kill may have come between a checkpoint and its pruning

    def add_metrics(self, row: dict[str, Any]) -> None:
        """Append one step's row; on disk when this returns."""
        times = {k: v for k, v in row.items() if k.startswith(TIMES)}
        with self._writing(self.metrics_file):
            if times:
                append_jsonl(self.timings_file, {"step": row["step"], **times})
            append_jsonl(self.metrics_file, {k: v for k, v in row.items() if k not in times})

    def record_evaluation(self, step: int, metric: str, value: float) -> None:
        """Write down an evaluation; the same one again takes its place."""
        others = [row for row in self.evaluations() if (row["step"], row["metric"]) != (step, metric)]
        with self._writing(self.evaluations_file):
            write_jsonl(self.evaluations_file, [*others, {"step": step, "metric": metric, "value": value}])

    def best(self) -> tuple[int, float] | None:
        """Step and value of the highest evaluation, the earlier of equal ones. The metric is the one recorded
        first.
        """
        return max(self._values().items(), key=lambda pair: (pair[1], -pair[0]), default=None)

    def _values(self) -> dict[int, float]:
        rows = self.evaluations()
        return {
            r["step"]: r["value"]
            for r in rows
            if r["metric"] == rows[0]["metric"] and math.isfinite(r["value"])
        }

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        found = [p for p in (self.path / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", p.name)]
        return sorted(found, key=_step)

    @staticmethod
    def adapter_saver(model: PeftModel) -> SaveAdapter:
        """What writes the student's adapter into a folder, in plain PEFT format."""
        return lambda folder: checkpoint.save_adapter(model, folder)

    def save_checkpoint(
        self, step: int, model: PeftModel, optimizer: torch.optim.Optimizer, keep: int
    ) -> Path:
        """A checkpoint of this step, visible only when complete, then `prune`. One that is there and sound is
        not rewritten.
        """
        final = self.path / "checkpoints" / f"step-{step:06d}"
        if not final.exists() or checkpoint.damage(final):
            with self._writing(final):
                checkpoint.write(final, step, model, optimizer, self.config)
            self._damaged.discard(final)
        self.prune(keep, step)
        return final

    def prune(self, keep: int, upto: int | None = None) -> None:
        """Keep the newest `keep` checkpoints and the best; damaged ones do not count. Those after `upto` are
        left alone.
        """
        found = [c for c in self.checkpoints() if upto is None or _step(c) <= upto]
        sound = [c for c in found if c not in self._damaged]
        values = self._values()
        best = max(
            (c for c in sound if _step(c) in values),
            key=lambda c: (values[_step(c)], -_step(c)),
            default=None,
        )
        kept = {*sound[-keep:], best}
        for old in found if sound else []:
            if old not in kept:
                with self._writing(old):
                    checkpoint.discard(old)

    def soundest(self) -> Path | None:
        """The newest undamaged checkpoint, None without any. Damaged ones on the way are named; if all are,
        that is an error.
        """
        problems: list[str] = []
        for folder in reversed(self.checkpoints()):
            if (problem := checkpoint.damage(folder)) is None:
                for line in problems:
                    log.warning("%s; %s is used, and the steps after it are repeated", line, folder.name)
                return folder
            self._damaged.add(folder)
            problems.append(f"{folder}: damaged: {problem}")
        if problems:
            listed = "\n  ".join(problems)
            raise UserError(
                f"{self.path}: every checkpoint is damaged:\n  {listed}\n"
                f"delete the folder {self.path / 'checkpoints'}, and the same command begins anew; or choose another --out"
            )
        return None

    def restore(self, model: PeftModel, optimizer: torch.optim.Optimizer, only: Path | None = None) -> int:
        """Load the newest undamaged checkpoint, or `only` the one given; the step it stands at, 0 without
        one.
        """
        chosen = only or self.soundest()
        if chosen is None:
            return 0
        if only and (problem := checkpoint.damage(only)):
            raise UserError(f"{only}: damaged: {problem}")
        return checkpoint.load(chosen, model, optimizer, self.config)

    def save_rollouts(self, step: int, rows: list[dict[str, Any]]) -> None:
        """The conversations of one step."""
        path = self.path / "rollouts" / f"step-{step:06d}.jsonl"
        with self._writing(path):
            write_jsonl(path, rows)

    def save_tokens(self, step: int, columns: tokens.Columns) -> None:
        """The token statistics of one step."""
        path = self.path / "tokens" / f"step-{step:06d}.safetensors"
        with self._writing(path):
            tokens.write(path, columns)


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # not empty: the run has begun
            return

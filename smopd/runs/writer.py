"""A run folder is written by one process at a time, each file (layout.py) so that a killed run can resume. It
may also hold inputs/ (what was passed from Python) and view/ (`smopd view`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from smopd.config import MAY_CHANGE, Config, load_config
from smopd.config_io import flatten, leaves, nest, scalar, to_toml
from smopd.errors import UserError
from smopd.evaluation.store import INPUTS
from smopd.files import STEP, append_jsonl, jsonl, locked, read_jsonl, write_jsonl, write_text
from smopd.models.adapter_files import checkpoints, damage, step_of
from smopd.runs import checkpoint, layout, tokens

if TYPE_CHECKING:
    from peft import PeftModel
    from torch.optim import Optimizer

log = logging.getLogger("smopd")
# What a run killed at its very beginning may leave.
UNFINISHED = {layout.LOCK, INPUTS, f"{layout.CONFIG}.partial"}
TIMES = "seconds/"
RECORDED = ("train.steps", "train.checkpoint_every", "train.eval_every", "train.patience")
Changes = dict[str, tuple[Any, Any]]  # setting -> (value in the run folder, value now)


class RunFolder:
    """One run's files. The constructor only reads; `lock` and `begin` are the first to write."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config, self.config_file = path, config, path / layout.CONFIG
        self._locked = False
        self._damaged: set[Path] = set()
        self.changed: Changes = {}  # since the last start, to be recorded by `begin`
        if self.config_file.exists():
            self.changed = changes(load_config(self.config_file), config)
            if lines := refused(self.changed):
                what = "holds a run of another configuration; choose another --out or the same settings"
                raise UserError("\n  ".join([f"{path}: {what}:", *lines]))
        elif path.exists() and not (path.is_dir() and {p.name for p in path.iterdir()} <= UNFINISHED):
            advice = "nothing was written, choose another --out"
            raise UserError(f"{path}: exists and is not a run folder (no {layout.CONFIG}); {advice}")

    def begin(self) -> None:
        """Write the config, or record what changed; called once everything that the run needs is there."""
        if self.changed:  # first, because older checkpoints are accepted by this record
            self.append(layout.STARTS, {"changed": self.changed})
        if self.changed or not self.config_file.exists():
            with self._explain_write_errors(self.config_file):
                write_text(self.config_file, to_toml(self.config))
        if "train.steps" in self.changed:
            before, _ = self.changed["train.steps"]
            log.info("%s: %s", self.path, lengthened_message(self.config, before))
        self.changed = {}

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock out other processes; reentrant. A run that does not begin leaves no folder."""
        if self._locked:
            yield
            return
        with ExitStack() as stack:
            stack.callback(_remove_empty, [p for p in (self.path, *self.path.parents) if not p.exists()])
            with self._explain_write_errors(self.path / layout.LOCK):
                works = stack.enter_context(locked(self.path / layout.LOCK, "works on this run"))
            if not works:
                advice = "do not start the same run twice at the same time"
                log.warning("%s: this file system has no locks: %s", self.path, advice)
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    @contextmanager
    def _explain_write_errors(self, path: Path) -> Iterator[None]:
        """Turn a failed write (disk full, read-only) into a UserError that says what is safe."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            where = getattr(error, "filename", None) or path
            why = getattr(error, "strerror", None) or str(error).rpartition("I/O error: ")[2]
            sound = next((c for c in reversed(checkpoints(self.path)) if damage(c) is None), None)
            safe, then = "No checkpoint is complete yet", "starts over"
            if sound:
                safe, then = f"The last complete checkpoint (step {step_of(sound)}) is intact", "continues"
            advice = f"{safe}: once this is mended, the same command {then}."
            raise UserError(f"{where}: cannot be written: {why}.\n{advice}") from None

    def metrics(self) -> list[dict[str, Any]]:
        return layout.read_rows(self.path, layout.METRICS)

    def evaluations(self) -> list[dict[str, Any]]:
        return layout.read_rows(self.path, layout.EVALUATIONS)

    def warnings(self) -> list[dict[str, Any]]:
        return layout.read_rows(self.path, layout.WARNINGS)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Append a row to one of the folder's JSONL files; it is on disk when this returns."""
        with self._explain_write_errors(self.path / name):
            append_jsonl(self.path / name, row)

    def cut_metrics(self, step: int) -> None:
        """Go back to `step`: drop rows of steps that will be repeated, and unfinished files of a crash."""
        with self._explain_write_errors(self.path):
            for name in (layout.METRICS, layout.TIMINGS, layout.EVALUATIONS, layout.WARNINGS):
                if (file := self.path / name).exists():
                    kept = jsonl(row for row in read_jsonl(file, STEP) if row["step"] <= step)
                    if kept.encode() != file.read_bytes():
                        write_text(file, kept)
            for name in ("", layout.ROLLOUTS, layout.TOKENS):
                for partial in (self.path / name).glob("*.partial"):
                    partial.unlink()
            checkpoint.sweep(self.path / layout.CHECKPOINTS)
        # A kill may have come between writing a checkpoint and pruning.
        self.prune(self.config.train.keep_checkpoints, step)

    def add_metrics(self, row: dict[str, Any]) -> None:
        times = {k: v for k, v in row.items() if k.startswith(TIMES)}
        if times:
            self.append(layout.TIMINGS, {"step": row["step"], **times})
        self.append(layout.METRICS, {k: v for k, v in row.items() if k not in times})

    def record_evaluation(self, step: int, metric: str, value: float) -> None:
        others = [row for row in self.evaluations() if (row["step"], row["metric"]) != (step, metric)]
        path = self.path / layout.EVALUATIONS
        with self._explain_write_errors(path):
            write_jsonl(path, [*others, {"step": step, "metric": metric, "value": value}])

    def best(self, steps: set[int] | None = None) -> tuple[int, float] | None:
        """Step and value of the earliest best evaluation (among `steps`), by the metric recorded first."""
        rows = self.evaluations()
        rows = [row for row in rows if row["metric"] == rows[0]["metric"] and math.isfinite(row["value"])]
        values = {row["step"]: row["value"] for row in rows if steps is None or row["step"] in steps}
        return max(values.items(), key=lambda pair: (pair[1], -pair[0]), default=None)

    def save_checkpoint(
        self, step: int, model: PeftModel, optimizer: Optimizer, keep: int,
        more: Callable[[Path], None] | None = None,
    ) -> Path:  # fmt: skip
        """Write a checkpoint atomically unless a valid one is there, then `prune`. `more` adds files."""
        final = self.path / layout.CHECKPOINTS / f"step-{step:06d}"
        if not final.exists() or damage(final):
            with self._explain_write_errors(final):
                checkpoint.write(final, step, model, optimizer, self.config, more)
            self._damaged.discard(final)
        self.prune(keep, step)
        return final

    def prune(self, keep: int, upto: int | None = None) -> None:
        """Delete checkpoints (up to `upto`) except the newest `keep` undamaged ones and the best."""
        folders = [c for c in checkpoints(self.path) if upto is None or step_of(c) <= upto]
        sound = [c for c in folders if c not in self._damaged]
        best = self.best({step_of(c) for c in sound})
        for old in folders if sound else []:
            if old not in sound[-keep:] and not (best and step_of(old) == best[0]):
                with self._explain_write_errors(old):
                    checkpoint.discard(old)

    def latest_valid_checkpoint(self) -> Path | None:
        """The newest undamaged checkpoint, or None; a UserError if all are damaged."""
        problems: list[str] = []
        for folder in reversed(checkpoints(self.path)):
            if (problem := damage(folder)) is None:
                for line in problems:
                    log.warning("%s; %s is used, and the steps after it are repeated", line, folder.name)
                return folder
            self._damaged.add(folder)
            problems.append(f"{folder}: damaged: {problem}")
        if problems:
            listed = "\n  ".join([f"{self.path}: every checkpoint is damaged:", *problems])
            advice = f"delete the folder {self.path / layout.CHECKPOINTS}, and the same command starts over"
            raise UserError(f"{listed}\n{advice}; or choose another --out")
        return None

    def restore(self, model: PeftModel, optimizer: Optimizer, only: Path | None = None) -> int:
        """Load `only` or the newest undamaged checkpoint; return its step, 0 if there is none."""
        chosen = only or self.latest_valid_checkpoint()
        if chosen is None:
            return 0
        earlier = earlier_settings(self.config, layout.read_rows(self.path, layout.STARTS))
        return checkpoint.load(chosen, model, optimizer, self.config, earlier)

    def save_rollouts(self, step: int, rows: list[dict[str, Any]]) -> None:
        path = layout.step_file(self.path, layout.ROLLOUTS, step, ".jsonl")
        with self._explain_write_errors(path):
            write_jsonl(path, rows)

    def save_tokens(self, step: int, columns: tokens.Columns, contexts: Iterable[dict[str, Any]]) -> None:
        path = layout.step_file(self.path, layout.TOKENS, step, ".safetensors")
        with self._explain_write_errors(path):
            write_jsonl(path.with_suffix(".contexts.jsonl"), contexts)
            tokens.write(path, columns)


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):  # not empty: the run has begun
        for folder in folders:
            folder.rmdir()


# --- which settings may change when a run is resumed
#
# Always those that no result depends on (MAY_CHANGE), and those in RECORDED, of which the steps can only
# increase. A change of the latter is written into starts.jsonl, so that older checkpoints are still accepted.
# Any other is refused.
def changes(stored: Config, now: Config) -> Changes:
    """Return the settings that differ and must be recorded or refused."""
    old, new = flatten(stored.model_dump()), flatten(now.model_dump())
    pairs = {key: (old.get(key), new.get(key)) for key in old | new if not key.startswith(MAY_CHANGE)}
    return {key: (before, after) for key, (before, after) in pairs.items() if before != after}


def refused(changed: Changes) -> list[str]:
    lines = []
    for key, (old, new) in changed.items():
        if key not in RECORDED:
            lines.append(f"{key}: {_format_value(old)} in the run folder, {_format_value(new)} now")
        elif key == "train.steps" and new < old:
            lines.append(f"{key}: {old} in the run folder, {new} now: a run can be lengthened, not shortened")
    return lines


def of_all_steps(config: Config, before: int) -> list[str]:
    """Return a line for everything else that depends on the number of steps, which was `before`."""
    steps, lines = config.train.steps, []
    if config.optim.schedule != "constant":
        falls = f"optim.schedule = {config.optim.schedule} falls to zero at the last step"
        lines.append(f"{falls}: until now at step {before}, from here on at step {steps}")
    values = flatten(config.model_dump())
    for key, field in leaves(type(config)).items():
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or not extra.get("share_of_steps"):
            continue
        table, idle = key.rpartition(".")[0], dict[str, Any](extra.get("idle") or {})  # type: ignore[arg-type]
        if values[key] and not any(values[f"{table}.{name}"] == value for name, value in idle.items()):
            share, value = f"{key} = {values[key]:.3g} is a share of all steps", values[key]
            lines.append(f"{share}: {value * before:.4g} steps until now, {value * steps:.4g} now")
    return lines


def lengthened_message(config: Config, before: int) -> str:
    lengthened = f"lengthened from {before} to {config.train.steps} steps"
    if lines := of_all_steps(config, before):
        unlike = "the steps so far are not those of a run that was this long from its beginning"
        return "\n  ".join([f"{lengthened}; {unlike}:", *lines])
    return f"{lengthened}; it ends as a run that was this long from its beginning"


def earlier_settings(config: Config, starts: list[dict[str, Any]]) -> Iterator[Config]:
    """The settings the run had before each recorded change, newest first."""
    values = flatten(config.model_dump())
    for row in reversed(starts):
        if undone := {key: pair[0] for key, pair in row.get("changed", {}).items() if key in RECORDED}:
            values |= undone
            yield type(config).model_validate(nest(values))


def _format_value(value: Any) -> str:
    return "nothing" if value is None else scalar(value)

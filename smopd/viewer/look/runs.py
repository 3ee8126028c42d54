"""A run folder as the run page shows it: settings, metrics by step, evaluations, how it ended, what it warned
of.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.config_io import flatten
from smopd.formatting import finite
from smopd.models.checksums import step_of
from smopd.runs import Run
from smopd.runs.evaluations import BASE


@dataclass(frozen=True)
class ConversationSource:
    """Where conversations come from: an evaluation of a run, or its training."""

    run: int
    kind: str  # "before", "after" or "training"
    name: str
    folder: Path
    data: str = ""  # a hash of the examples that were played
    step: int | None = None  # of the checkpoint that was evaluated
    summary: dict[str, Any] = field(default_factory=dict)


def sources_of(number: int, run: Path) -> list[ConversationSource]:
    """The finished evaluations of a run, those of the untrained model first, and its training."""
    folder = Run(run)
    found = [
        ConversationSource(
            number, "before" if e.side == BASE else "after",
            "base" if e.where == "eval" else e.where.removeprefix("eval/"),
            e.folder, str(e.identity.get("examples", "")),
            None if e.side == BASE else step_of(Path(e.side)), e.summary,
        )
        for e in folder.evaluated()[0] if e.summary is not None
    ]  # fmt: skip
    found.sort(key=lambda source: source.kind != "before")
    if folder.rollout_files:
        found.append(ConversationSource(number, "training", "training", run))
    return found


def read_run(run: Path) -> dict[str, Any]:
    """Everything the pages tell of a run but its conversations."""
    folder = Run(run)
    config, rows = folder.config, folder.steps
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    done = rows[-1]["step"] if rows else 0
    return {
        "name": folder.name,
        "model": config.model.path,
        "method": config.method,
        "data": config.data.train,
        "seed": config.seed,
        "steps": config.train.steps,
        "done": done,
        "rollouts": config.train.rollouts,
        "ended": _ended(folder, rows),
        "settings": {key: _plain(value) for key, value in flatten(config.model_dump()).items()},
        "step": [row["step"] for row in rows],
        "metrics": {name: [_number(row.get(name)) for row in rows] for name in names},
        "evaluations": folder.training_evaluations,
        "starts": folder.starts,
        "warnings": [*_warned(folder), *_noticed(rows)],
        "checkpoints": [step_of(checkpoint) for checkpoint in folder.checkpoints],
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _number(value: Any) -> float | None:
    """Five digits: what a curve shows."""
    number = finite(value)
    return None if number is None else float(f"{number:.5g}")


def _ended(run: Run, rows: list[dict[str, Any]]) -> str:
    """In a sentence, how far the run came and why it ended there."""
    steps, patience = run.config.train.steps, run.config.train.patience
    done = rows[-1]["step"] if rows else 0
    if run.working:
        return f"At step {done} of {steps}; a process works on it, or was killed."
    if not done:
        return "It was not trained."
    if done >= steps:
        return f"It came to its last step, {done} of {steps}."
    if rows[-1].get("skipped"):
        return f"It ended after step {done} of {steps}: steps had no finite gradient."
    if patience:
        why = f"{patience} evaluations brought nothing better, or it was stopped"
        return f"It ended after step {done} of {steps}: {why}."
    return f"It was stopped after step {done} of {steps}; the same command goes on from there."


def _warned(run: Run) -> list[dict[str, Any]]:
    """What the run warned of, with the step."""
    return [{"step": row.get("step"), "message": str(row.get("warning", ""))} for row in run.warnings]


def _noticed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the metrics themselves complain of."""
    failed = Counter({s: sum(row.get(f"verdict/{s}") or 0 for row in rows) for s in ("timeout", "error")})
    return [
        {"step": None, "message": f"{count} replies in training were not judged: {status}"}
        for status, count in failed.items()
        if count
    ]

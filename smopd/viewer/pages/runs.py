"""The data of a run's page: settings, metrics by step, evaluations, how it ended, warnings."""

from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

from smopd.config_io import flatten
from smopd.models.adapter_files import step_of
from smopd.progress import not_judged
from smopd.runs import Run
from smopd.runs.evaluations import BASE
from smopd.viewer.report import curve_point


@dataclass(frozen=True)
class ConversationSource:
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
    sources = [
        ConversationSource(
            number, "before" if e.side == BASE else "after",
            "base" if e.where == "eval" else e.where.removeprefix("eval/"),
            e.folder, str(e.identity.get("examples", "")),
            None if e.side == BASE else step_of(Path(e.side)), e.summary,
        )
        for e in folder.evaluated()[0] if e.summary is not None
    ]  # fmt: skip
    sources.sort(key=lambda source: source.kind != "before")
    if folder.rollout_files:
        sources.append(ConversationSource(number, "training", "training", run))
    return sources


def read_run(run: Path) -> dict[str, Any]:
    """Everything the pages show of a run except its conversations."""
    folder = Run(run)
    config, rows = folder.config, folder.steps
    names = list(dict.fromkeys(name for row in rows for name in row if name != "step"))
    settings, plain = flatten(config.model_dump()), (str, int, float, NoneType)
    done = rows[-1]["step"] if rows else 0
    warnings = [{"step": row.get("step"), "message": str(row.get("warning", ""))} for row in folder.warnings]
    counts = {status: count for status, count in not_judged(rows).items() if status != "no_answer"}
    judged = (f"{count} replies in training were not judged: {status}" for status, count in counts.items())
    warnings += [{"step": None, "message": message} for message in judged]
    return {
        "name": folder.name, "model": config.model.path, "method": config.method, "data": config.data.train,
        "seed": config.seed, "steps": config.train.steps, "rollouts": config.train.rollouts,
        "evaluations": folder.training_evaluations, "starts": folder.starts, "warnings": warnings,
        "done": done, "ended": _describe_end(folder, done, rows),
        "settings": {k: v if isinstance(v, plain) else str(v) for k, v in settings.items()},
        "step": [row["step"] for row in rows],
        "metrics": {name: [curve_point([row.get(name)]) for row in rows] for name in names},
        "checkpoints": list(map(step_of, folder.checkpoints)),
    }  # fmt: skip


def _describe_end(run: Run, done: int, rows: list[dict[str, Any]]) -> str:
    steps, patience = run.config.train.steps, run.config.train.patience
    place = f"step {done} of {steps}"
    if run.working:
        return f"At {place}; a process works on it, or was killed."
    if not done:
        return "It was not trained."
    if done >= steps:
        return f"It came to its last step, {done} of {steps}."
    if rows[-1].get("skipped"):
        return f"It ended after {place}: steps had no finite gradient."
    if patience:
        return f"It ended after {place}: {patience} evaluations brought nothing better, or it was stopped."
    return f"It was stopped after {place}; run the same command to resume."

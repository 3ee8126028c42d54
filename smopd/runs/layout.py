"""The names of the files in a run folder, shared by its reader (`run.py`) and writer (`writer.py`)."""

from pathlib import Path
from typing import Any

from smopd.files import STEP, read_jsonl

CONFIG = "config.toml"  # every setting, resolved; it makes a folder a run
STARTS = "starts.jsonl"  # a row for each start or resume: where, with what
METRICS = "metrics.jsonl"  # a row per step
TIMINGS = "timings.jsonl"  # the seconds of each step, kept apart because no seed determines them
EVALUATIONS = "evaluations.jsonl"  # accuracies during training
WARNINGS = "warnings.jsonl"
ROLLOUTS, TOKENS, CHECKPOINTS = "rollouts", "tokens", "checkpoints"
EVALUATED, EVAL = "evaluated.jsonl", "eval"  # the list of all evaluations, and the folder of most of them
GRADIENTS = "gradients.json"  # from `smopd study gradients`
LOCK = ".lock"

# The fields of each file's rows that readers rely on.
SHAPES = {METRICS: STEP, TIMINGS: STEP, EVALUATIONS: STEP | {"metric": str, "value": float}}


def read_rows(run: Path, name: str) -> list[dict[str, Any]]:
    """The rows of one of the folder's JSONL files; empty if it is missing."""
    return read_jsonl(run / name, SHAPES.get(name, object))


def is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def step_file(run: Path, folder: str, step: int, suffix: str) -> Path:
    return run / folder / f"step-{step:06d}{suffix}"

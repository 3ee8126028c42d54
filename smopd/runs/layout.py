"""The names of the files in a run folder, for whoever reads it (`run.py`) or writes it (`writer.py`)."""

from pathlib import Path
from typing import Any

from smopd.files import STEP, read_jsonl

CONFIG = "config.toml"  # every setting, resolved: what makes a folder a run
STARTS = "starts.jsonl"  # a row each time it began or went on: where, with what
METRICS = "metrics.jsonl"  # a row a step
TIMINGS = "timings.jsonl"  # the seconds of each step, which no seed decides
EVALUATIONS = "evaluations.jsonl"  # accuracies while training
WARNINGS = "warnings.jsonl"
ROLLOUTS, TOKENS, CHECKPOINTS = "rollouts", "tokens", "checkpoints"
EVALUATED, EVAL = "evaluated.jsonl", "eval"  # the list of all evaluations, and the folder of most of them
GRADIENTS = "gradients.json"  # from `smopd study gradients`
LOCK = ".lock"

# What readers rely on in the rows of each.
SHAPES = {METRICS: STEP, TIMINGS: STEP, EVALUATIONS: STEP | {"metric": str, "value": float}}


def read_rows(run: Path, name: str) -> list[dict[str, Any]]:
    """The rows of one of the folder's JSONL files; none where it is not there."""
    return read_jsonl(run / name, *([SHAPES[name]] if name in SHAPES else []))


def is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def step_file(run: Path, folder: str, step: int, suffix: str) -> Path:
    return run / folder / f"step-{step:06d}{suffix}"

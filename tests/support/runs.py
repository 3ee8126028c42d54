"""Small runs: how tests start them, in this process or another, and what they read of them."""

import json
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from smopd.config import Config, load_config
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.runs.writer import RunFolder
from smopd.training.loop import Trainer

COMMAND = (sys.executable, "-m", "smopd.cli")


def flat(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name."""
    return flatten(config.model_dump())


def complaint(*args: Any, call: Callable[..., Any] = load_config, **kwargs: Any) -> str:
    """What is said when it is refused."""
    with pytest.raises(UserError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def set_words(settings: Iterable[str]) -> list[str]:
    """The settings as words of a command line."""
    return [word for setting in settings for word in ("--set", setting)]


def trainer_of(path: Path, *settings: str, method: str | None = None) -> Trainer:
    """A run of the pocket recipe that has taken no step yet, or goes on in its folder."""
    config = load_config("pocket", settings, method)
    return Trainer(config, RunFolder(path, config))


def train(path: Path, *settings: str, method: str | None = None) -> Path:
    """A whole run."""
    trainer_of(path, *settings, method=method).train()
    return path


def take_step(trainer: Trainer, number: int) -> dict[str, Any]:
    """One step by itself, without the checkpoint a run would write."""
    return trainer.take_step(number, nullcontext)


def rows(file: Path) -> list[Any]:
    """A file of JSON lines, every one of them whole."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a run's steps; the times, which no seed decides, are not among them."""
    return rows(path / "metrics.jsonl")


def checkpoint(path: Path, step: int, name: str = "adapter_model") -> dict[str, torch.Tensor]:
    """The tensors of one file of a checkpoint."""
    return load_file(path / "checkpoints" / f"step-{step:06d}" / f"{name}.safetensors")


def equal(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> bool:
    """The same names, types and bits."""
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def replies(evaluation: Path) -> dict[tuple[str, str], list[str]]:
    """What was said in an evaluation: (example, view) -> its replies."""
    conversations = rows(evaluation / "conversations.jsonl")
    return {(row["id"], row["view"]): [turn["reply"] for turn in row["turns"]] for row in conversations}


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nobody() -> str:
    """A URL at which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"

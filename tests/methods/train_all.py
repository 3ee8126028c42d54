"""Takes the first steps of the runs of test_training.py, one method after the other, by as many processes as
a launcher starts: `torchrun --nproc-per-node 2 tests/methods/train_all.py FOLDER STEPS ENGINE METHOD ...`
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from smopd.config import load_config
from smopd.rollout import assembly
from smopd.rollout.engine import Engine
from smopd.runs.writer import RunFolder
from smopd.training.hooks import Hooks
from smopd.training.loop import Trainer
from smopd.training.processes import Processes

STEPS, HALF = 12, 6
# The paper's learning rate: at a higher one Adam makes more of rounding than the comparison allows.
SMALL = ["train.rollouts=2", "train.micro_batch=4", "rollout.middle_tokens=8", "rollout.answer_tokens=24",
         "lora.r=8", "lora.alpha=16", "optim.lr=5e-6", "optim.warmup_steps=0",
         "train.keep_checkpoints=9", f"train.steps={STEPS}", f"train.checkpoint_every={HALF}"]  # fmt: skip


def settings_of(method: str) -> list[str]:
    """What a small run of a method is told; groups are three rollouts each."""
    group = getattr(load_config("pocket", method=method).objective, "samples", 1) > 1
    return [*SMALL, *(["objective.samples=3"] if group else [])]


class Until(Hooks):
    """Ends a run after a step that is not its last: what depends on a run's length stays as it is."""

    def __init__(self, step: int) -> None:
        self.last = step

    def step_end(self, row: dict[str, Any]) -> None:
        self.stop = row["step"] >= self.last


class Lasting:
    """Makes an engine once: vLLM takes longer to start than a run takes steps."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.make, assembly.make_engine = assembly.make_engine, self

    def __call__(self, *args: Any, **kwargs: Any) -> Engine:
        if self.engine is None:
            self.engine = self.make(*args, **kwargs)
            self.close, self.engine.close = self.engine.close, lambda: None  # type: ignore[method-assign]
        return self.engine


def train_all(folder: Path, steps: int, kind: str, methods: list[str]) -> None:
    """A run in a folder of its own for every method."""
    processes = Processes()
    lasting = Lasting() if kind == "vllm" else None
    extra = ["engine.kind=vllm", "engine.max_length=512", "engine.memory=0.1"] if lasting else []
    for method in methods:
        config = load_config("pocket", [*settings_of(method), *extra], method)
        Trainer(config, RunFolder(folder / method, config), processes).train(hooks=Until(steps))
        if processes.first:
            print(method, flush=True)
    if lasting:
        lasting.close()
    processes.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with suppress(BrokenPipeError):
        train_all(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])

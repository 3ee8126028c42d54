"""`benchmarks device`: one training step on the strict device: what a GPU would be asked to do, and how
often the host would wait for it. Counts, no times: they are the same on every machine.

The recipe is pocket's, the model a random one of its architecture: nearly all of its replies run to their
limit, so the sizes are those asked for.
"""

import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from smopd.config import load_config
from smopd.devices import using
from smopd.doctor.speed_parts import save_model
from smopd.errors import UserError
from smopd.methods import METHODS
from smopd.pocket import MODEL_DIR
from smopd.runs.writer import RunFolder
from smopd.tracking import Track, quiet
from smopd.training.loop import Trainer

TESTS = Path(__file__).parents[1] / "tests"
PHASES = ("rollout", "scoring", "update")
NOTES = [
    "launches: operations of torch that write; syncs: the host waits for the device; uploads: copies to it",
    "scoring: passes, losses, gradients and the copy of the statistics; update: clipping, AdamW, the teacher",
    "the update is counted matrix by matrix; on a GPU torch's AdamW and clipping take them together",
]


@dataclass(frozen=True)
class Device:
    """The size of the step."""

    rollouts: int = 4
    micro_batch: int = 4
    reply: int = 16  # tokens of every reply
    layers: int = 2
    method: str = "entropy"
    dtype: str = "float32"
    recompute: bool = False


class CountedTrainer(Trainer):
    """A trainer that keeps the counts of a step's phases apart."""

    def __init__(self, counts: Any, *args: Any) -> None:
        super().__init__(*args)
        self.counts, self.by_phase = counts, dict[str, dict[str, Any]]()
        score = self.scorer.score

        def counted(*args: Any) -> Any:
            self.counted("rollout")
            return score(*args)

        self.scorer.score = counted  # type: ignore[method-assign,assignment]

    def counted(self, phase: str) -> None:
        """What was counted since the last call belongs to `phase`."""
        counts = self.counts
        self.by_phase[phase] = {
            "launches": counts.launches, "syncs": counts.syncs, "uploads": counts.uploads,
            "by_operation": Counter(counts.by_operation),
        }  # fmt: skip
        counts.clear()

    def _update(self, step: int, loss: float) -> dict[str, Any]:
        self.counted("scoring")
        row = super()._update(step, loss)
        self.counted("update")
        return row


def strict_module() -> Any:
    """The strict device, which the tests hold."""
    if not (TESTS / "support" / "strict_device.py").exists():
        raise UserError(f"{TESTS}/support/strict_device.py is missing: run this in a whole checkout")
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return import_module("support.strict_device")


def count_step(settings: Device) -> dict[str, Any]:
    """The counts of one step, phase by phase, with its sizes."""
    with TemporaryDirectory(prefix="smopd-") as folder:
        model = Path(folder) / "model"
        _random_model(settings, model)
        sets = [
            f"model.path={model}", f"model.dtype={settings.dtype}", f"train.rollouts={settings.rollouts}",
            f"train.micro_batch={settings.micro_batch}", f"rollout.middle_tokens={settings.reply}",
            f"rollout.answer_tokens={settings.reply}", "train.steps=1",
            f"train.recompute={str(settings.recompute).lower()}", "data.train=pocket:train:64",
        ]  # fmt: skip
        method = METHODS.get(settings.method)
        if method and "mask_after" in method.section.model_fields:
            sets.append("objective.mask_after=0")  # the mask is on from the first step
        config = load_config("pocket", sets, settings.method)
        strict = strict_module()
        with strict.strict_device() as counts, using(strict.DEVICE):
            trainer = CountedTrainer(counts, config, RunFolder(Path(folder) / "run", config))
            counts.clear()
            row = trainer.take_step(1, nullcontext)
    return {"phases": trainer.by_phase, "tokens": row["tokens/sampled"], "skipped": row["skipped"]}


def _random_model(settings: Device, folder: Path) -> None:
    """A model folder: pocket's architecture and tokenizer, so many layers, random weights."""
    shape = AutoConfig.from_pretrained(MODEL_DIR, trust_remote_code=False)
    shape.num_hidden_layers = settings.layers
    if getattr(shape, "layer_types", None):
        shape.layer_types = shape.layer_types[:1] * settings.layers
    transformers_logging.disable_progress_bar()
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(shape, trust_remote_code=False)
    save_model(model, folder)


def report(settings: Device, track: Track = quiet) -> dict[str, Any]:
    """The counts as rows, with their shares of a layer and of a token."""
    with track("one step on the strict device"):
        step_counts = count_step(settings)
    rows = []
    for phase in PHASES:
        counts = step_counts["phases"][phase]
        rows.append(
            {
                "name": phase,
                **{name: counts[name] for name in ("launches", "syncs", "uploads")},
                "launches_per_layer": counts["launches"] / settings.layers,
                "launches_per_token": counts["launches"] / step_counts["tokens"],
                "syncs_per_token": counts["syncs"] / step_counts["tokens"],
                "most": dict(counts["by_operation"].most_common(5)),
            }
        )
    sizes = {"tokens": step_counts["tokens"], "layers": settings.layers}
    return {"bench": "device", "settings": asdict(settings), **sizes, "results": rows, "notes": NOTES}

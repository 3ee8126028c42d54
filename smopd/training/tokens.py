"""The token log: what is known of every reply token of a step, a column each, one safetensors file a step
(`train.save_tokens`).

    rollout, turn, part, position   which token it is; `part` is 0 middle, 1 answer, 2 FULL; the rollouts' ids are metadata
    token                           its id
    entropy, teacher_entropy        nats, full vocabulary, temperature 1
    divergence                      before the cap
    student_logp, teacher_logp      of the token, under the dirty and the clean context
    kept, clipped                   whether it carries loss, whether its divergence is over the cap
    weight                          of its turn; 1 for answer and FULL

Thirty-nine bytes a token, readable by anything that reads safetensors. What is made of it is in
smopd/study/calibration.py.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from smopd.config import Objective
from smopd.errors import UserError
from smopd.files import write_bytes
from smopd.objective import RolloutLoss
from smopd.training.scoring_step import ScoredTurn, position_clip

PARTS = ("middle", "answer", "full")
TYPES = {
    "rollout": torch.int16, "turn": torch.int16, "part": torch.uint8, "position": torch.int32, "token": torch.int32,
    "entropy": torch.float32, "teacher_entropy": torch.float32, "divergence": torch.float32, "student_logp": torch.float32,
    "teacher_logp": torch.float32, "kept": torch.uint8, "clipped": torch.uint8, "weight": torch.float32,
}  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """The tokens of one step."""

    values: dict[str, torch.Tensor]
    ids: list[str]  # of the rollouts


def token_columns(
    records: Sequence[dict[str, Any]],
    losses: Sequence[RolloutLoss],
    scored: Sequence[Sequence[ScoredTurn]],
    objective: Objective,
) -> Columns:
    """Everything a step knows of its tokens; `records` name the rollouts."""
    clip = position_clip(objective)
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in TYPES}
    for number, (loss, turns) in enumerate(zip(losses, scored, strict=True)):
        masks, weights = iter(loss.masks), iter(loss.weights)
        for turn in turns:
            count, middle = len(turn.tokens), turn.part == "middle"
            stats = turn.stats
            found = {
                "rollout": torch.full((count,), number),
                "turn": torch.full((count,), turn.turn),
                "part": torch.full((count,), PARTS.index(turn.part)),
                "position": torch.arange(count),
                "token": turn.tokens,
                "entropy": stats.entropy,
                "teacher_entropy": stats.teacher_entropy,
                "divergence": stats.divergence.detach(),
                "student_logp": stats.student_logp,
                "teacher_logp": stats.teacher_logp,
                "kept": next(masks) if middle else torch.ones(count),
                "clipped": stats.divergence.detach() > clip,
                "weight": next(weights).expand(count) if middle else torch.ones(count),
            }
            for name, column in found.items():
                rows[name].append(column.cpu())
    empty = [torch.zeros(0)]
    return Columns(
        {name: torch.cat(rows[name] or empty).to(kind) for name, kind in TYPES.items()},
        [record["id"] for record in records],
    )


def write(path: Path, columns: Columns) -> None:
    """Whole or not at all."""
    write_bytes(path, save(columns.values, metadata={"ids": json.dumps(columns.ids)}))


def read(path: Path) -> Columns:
    """What `write` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            return Columns(
                {name: file.get_tensor(name) for name in TYPES}, json.loads(file.metadata()["ids"])
            )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a token log: {str(error).strip()}") from None

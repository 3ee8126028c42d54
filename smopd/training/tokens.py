"""The token log: what is known of every scored reply token of a step, a column each, one safetensors file a
step (`train.save_tokens`).

    rollout, turn, part, position   which token it is; `part` is the number of its term (names: metadata)
    token                           its id
    entropy, teacher_entropy        nats, full vocabulary, temperature 1
    divergence                      the term's row loss, before the cap
    student_logp, teacher_logp      of the token, under the dirty and the teacher's context
    kept, clipped                   whether it carries loss, whether its divergence is over the cap
    weight                          of its turn

Thirty-nine bytes a token, readable by anything that reads safetensors. A reply that two terms score stands
there twice. What is made of it is in smopd/study/calibration.py.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from smopd.errors import UserError
from smopd.files import write_bytes
from smopd.objective.loss import RolloutLoss
from smopd.objective.plan import Plan

TYPES = {
    "rollout": torch.int16, "turn": torch.int16, "part": torch.uint8, "position": torch.int32,
    "token": torch.int32, "entropy": torch.float32, "teacher_entropy": torch.float32,
    "divergence": torch.float32, "student_logp": torch.float32, "teacher_logp": torch.float32,
    "kept": torch.uint8, "clipped": torch.uint8, "weight": torch.float32,
}  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """The tokens of one step."""

    values: dict[str, torch.Tensor]
    ids: list[str]  # of the rollouts
    terms: list[str]
    selecting: list[str]  # the terms that choose among their tokens


def token_columns(ids: Sequence[str], losses: Sequence[RolloutLoss], plan: Plan) -> Columns:
    """Everything a step knows of its tokens; `ids` name the rollouts."""
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in TYPES}
    terms = [term.name for term in plan.terms]
    for number, loss in enumerate(losses):
        for name, part in loss.terms.items():
            kept = part.kept()
            for k, (reply, stats) in enumerate(zip(part.replies, part.stats, strict=True)):
                count = len(reply.tokens)
                columns = {
                    "rollout": torch.full((count,), number),
                    "turn": torch.full((count,), reply.turn),
                    "part": torch.full((count,), terms.index(name)),
                    "position": torch.arange(count),
                    "token": torch.tensor(reply.tokens),
                    "entropy": stats.entropy,
                    "teacher_entropy": stats.teacher_entropy,
                    "divergence": stats.divergence.detach(),
                    "student_logp": stats.student_logp,
                    "teacher_logp": stats.teacher_logp,
                    "kept": kept[k],
                    "clipped": part.over[k],
                    "weight": part.turn_weights[k].expand(count),
                }
                for column, values in columns.items():
                    rows[column].append(values.cpu())
    empty = [torch.zeros(0)]
    return Columns(
        {name: torch.cat(rows[name] or empty).to(kind) for name, kind in TYPES.items()},
        list(ids),
        terms,
        [term.name for term in plan.terms if term.selects],
    )


def write(path: Path, columns: Columns) -> None:
    """Whole or not at all."""
    names = {"ids": columns.ids, "terms": columns.terms, "selecting": columns.selecting}
    write_bytes(path, save(columns.values, metadata={key: json.dumps(value) for key, value in names.items()}))


def read(path: Path) -> Columns:
    """What `write` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            names = [json.loads(file.metadata()[key]) for key in ("ids", "terms", "selecting")]
            return Columns({name: file.get_tensor(name) for name in TYPES}, *names)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a token log: {str(error).strip()}") from None

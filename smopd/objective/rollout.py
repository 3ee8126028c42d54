"""The paper's loss of one rollout as a function of token statistics, for loops that are not ours.

The training loop takes the same parts through a plan (smopd/methods/smopd.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from smopd.lazy import torch
from smopd.objective.caps import Cap, hard, scale
from smopd.objective.contexts import whole_task
from smopd.objective.loss import term_loss
from smopd.objective.plan import Term
from smopd.objective.replies import every
from smopd.objective.selection import Interpolation, keep_mask
from smopd.objective.turns import reliability_weight, uniform
from smopd.scoring.losses import reverse_kl
from smopd.scoring.stats import TokenStats


@dataclass(frozen=True)
class PartLosses:
    """The loss of one rollout with its parts and what a log wants to know (all but `total` detached)."""

    total: torch.Tensor
    middle: torch.Tensor
    answer: torch.Tensor
    full: torch.Tensor
    deltas: torch.Tensor
    weights: torch.Tensor
    masks: tuple[torch.Tensor, ...]  # of the eligible middle replies: which tokens carry loss
    kept: int
    middle_tokens: int
    clipped: dict[str, tuple[int, int]]  # part -> (positions over the cap, positions that carry loss)


def rollout_loss(
    middle: Sequence[TokenStats],
    answer: TokenStats | None,
    full: TokenStats | None = None,
    *,
    correct: bool = False,
    keep: float = 1.0,
    eta: float = 0.0,
    clip: float = 0.5,
    eps: float = 1e-6,
    interpolation: Interpolation = "linear",
    ranking: Literal["entropy", "random", "divergence", "inverted"] = "entropy",
    noise: Sequence[torch.Tensor] | None = None,
    denominator: Literal["kept", "all"] = "kept",
    clip_mode: Literal["hard", "scale"] = "hard",
    importance: Sequence[torch.Tensor] | None = None,
) -> PartLosses:
    """L_mid + L_answer (+ L_full where that branch was drawn). Replies without tokens are not eligible and
    add nothing.

    `keep` is the ratio in force at this step: 1 while the mask is off. The mask keeps the highest of a
    `ranking`; for a random one `noise` holds a vector for each of the middle replies. `importance` holds a
    detached factor for every token, a vector for each of the middle replies, the answer and the FULL reply
    that are given, in this order.
    """
    if noise is not None and len(noise) != len(middle):
        raise ValueError(
            f"noise must hold a vector for each of the {len(middle)} middle replies, found {len(noise)}"
        )
    if ranking == "random" and noise is None:
        raise ValueError("a random mask needs `noise`, a number for every token of each middle reply")
    given = [*middle, *(part for part in (answer, full) if part is not None)]
    factors = importance or [torch.ones_like(stats.entropy) for stats in given]
    weighed: list[TokenStats] = []
    for number, (stats, factor) in enumerate(zip(given, factors, strict=True)):
        ranks = {"entropy": stats.entropy, "inverted": -stats.entropy, "divergence": stats.divergence}
        if noise is not None and number < len(middle):
            ranks["random"] = noise[number]
        mask = (
            keep_mask(ranks[ranking], keep, interpolation)
            if number < len(middle)
            else torch.ones_like(factor).bool()
        )
        weighed.append(replace(stats, weight=mask.to(factor) * factor))
    parts = {"middle": weighed[: len(middle)], "answer": [], "full": []}
    rest = iter(weighed[len(middle) :])
    for name, part in (("answer", answer), ("full", full)):
        parts[name] = [next(rest)] if part is not None else []
    # Without a token too the loss is where the statistics are.
    like = weighed[0].divergence if weighed else torch.zeros(0)
    cap: Cap = hard(clip) if clip_mode == "hard" else scale(clip)
    losses = {}
    for name, stats_of in parts.items():
        turns = reliability_weight(eta, eps) if name == "middle" else uniform
        term = Term(name, every, whole_task, reverse_kl(), cap=cap, turns=turns, mean_over=denominator)
        eligible = [s for s in stats_of if len(s.divergence)]
        losses[name] = term_loss(term, (), eligible, correct, like.new_zeros(()))
    masks = losses["middle"].kept()
    return PartLosses(
        total=losses["middle"].value + losses["answer"].value + losses["full"].value,
        **{name: loss.value.detach() for name, loss in losses.items()},
        deltas=losses["middle"].deltas,
        weights=losses["middle"].turn_weights,
        masks=tuple(masks),
        kept=sum(int(mask.sum()) for mask in masks),
        middle_tokens=sum(len(mask) for mask in masks),
        clipped={
            name: (
                sum(int((over & kept).sum()) for over, kept in zip(loss.over, loss.kept(), strict=True)),
                sum(int(kept.sum()) for kept in loss.kept()),
            )
            for name, loss in losses.items()
        },
    )

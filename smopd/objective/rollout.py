"""The paper's loss of one rollout as a function of token statistics, for loops that are not ours.

The training loop takes the same parts through a plan (smopd/methods/smopd.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from smopd.lazy import torch
from smopd.objective.caps import hard, scale
from smopd.objective.contexts import whole_task
from smopd.objective.loss import RolloutLoss, term_loss
from smopd.objective.plan import Term
from smopd.objective.replies import every
from smopd.objective.selection import Interpolation, keep_mask
from smopd.objective.turns import reliability_weight, uniform
from smopd.scoring.losses import reverse_kl
from smopd.scoring.stats import TokenStats


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
) -> RolloutLoss:
    """L_mid + L_answer (+ L_full where that branch was drawn), as three terms. Replies without tokens are not
    eligible and add nothing.

    `keep` is the ratio in force at this step: 1 while the mask is off. The mask keeps the highest of a
    `ranking`; for a random one `noise` holds a vector for each of the middle replies. `importance` holds a
    detached factor for every token, a vector for each of the middle replies, the answer and the FULL reply
    that are given, in this order.
    """
    if noise is not None and len(noise) != len(middle):
        raise ValueError(f"noise must hold a vector for each of {len(middle)} middle replies: {len(noise)}")
    if ranking == "random" and noise is None:
        raise ValueError("a random mask needs `noise`, a number for every token of each middle reply")
    parts = [*(("middle", stats) for stats in middle), ("answer", answer), ("full", full)]
    scored = [(name, stats) for name, stats in parts if stats is not None]
    factors = importance or [torch.ones_like(stats.entropy) for _, stats in scored]
    weighed: dict[str, list[TokenStats]] = {"middle": [], "answer": [], "full": []}
    for number, ((name, stats), factor) in enumerate(zip(scored, factors, strict=True)):
        weight = factor
        if name == "middle":
            ranks = {"entropy": stats.entropy, "inverted": -stats.entropy, "divergence": stats.divergence}
            rank = noise[number] if noise is not None and ranking == "random" else ranks[ranking]
            weight = keep_mask(rank, keep, interpolation).to(factor) * factor
        weighed[name].append(replace(stats, weight=weight))
    # Without a token too the loss is where the statistics are.
    zero = (scored[0][1].divergence if scored else torch.zeros(0)).new_zeros(())
    cap = hard(clip) if clip_mode == "hard" else scale(clip)
    terms = {}
    for name, of_term in weighed.items():
        turns = reliability_weight(eta, eps) if name == "middle" else uniform
        term = Term(name, every, whole_task, reverse_kl(), cap=cap, turns=turns, mean_over=denominator)
        terms[name] = term_loss(term, (), [s for s in of_term if len(s.divergence)], correct, zero)
    return RolloutLoss(sum((loss.value for loss in terms.values()), start=zero), terms)

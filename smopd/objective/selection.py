"""Which tokens of a middle reply carry loss (SPEC 2.4), and how much a middle turn weighs (SPEC 2.5). All of
it detached.

The paper ranks tokens by student entropy. The other rankings are its controls: same rule, same number of
tokens, another order.
"""

from math import ceil, floor
from typing import Literal

import torch

from smopd.scoring.stats import TokenStats

Interpolation = Literal["linear", "lower", "higher", "midpoint", "nearest"]
Ranking = Literal["entropy", "random", "divergence", "inverted"]


def keep_mask(
    entropy: torch.Tensor, keep: float = 0.8, interpolation: Interpolation = "linear"
) -> torch.Tensor:
    """True for the tokens of one reply whose entropy reaches the (1 - keep) quantile. Ties at the threshold
    are kept.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be in (0, 1], found {keep}")
    if keep == 1 or entropy.numel() == 0:
        return torch.ones_like(entropy, dtype=torch.bool)
    ordered = entropy.detach().sort().values
    rank = (1 - keep) * (ordered.numel() - 1)
    # 1 - 0.7 is a little more than 0.3: without this a token right at the threshold would fall below it
    rank = round(rank) if abs(rank - round(rank)) < 1e-9 else rank
    below, above = ordered[floor(rank)], ordered[ceil(rank)]
    threshold = {
        "linear": torch.minimum(below + (rank - floor(rank)) * (above - below), above),
        "lower": below,
        "higher": above,
        "midpoint": (below + above) / 2,
        "nearest": ordered[round(rank)],
    }[interpolation]
    return entropy.detach() >= threshold


def select(
    reply: TokenStats,
    keep: float,
    by: Ranking = "entropy",
    interpolation: Interpolation = "linear",
    noise: torch.Tensor | None = None,
) -> torch.Tensor:
    """True for the tokens of one reply that carry loss: the highest `keep` of a ranking.

    `inverted` drops the highest entropies instead of the lowest; `divergence` keeps where student and teacher
    differ most; `random` keeps by `noise`, a number for every token that whoever calls has drawn.
    """
    if by == "random":
        if noise is None:
            raise ValueError("a random mask needs `noise`, a number for every token of the reply")
        return keep_mask(noise.to(reply.entropy.device), keep, interpolation)
    ranks = {"entropy": reply.entropy, "divergence": reply.divergence.detach(), "inverted": -reply.entropy}
    return keep_mask(ranks[by], keep, interpolation)


def masked(step: int, total_steps: int, mask_after: float = 0.33) -> bool:
    """Whether the entropy mask is on at `step` (counted from 1): it is off for the first third of the run."""
    return step > mask_after * total_steps


def reliability(deltas: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """r_t = med / (med + D_t) over the eligible turns of one rollout, D = max(delta, eps)."""
    floored = deltas.detach().clamp_min(eps)
    if floored.numel() == 0:
        return floored
    # torch.median takes the lower of two middle values; the paper's median is their mean
    median = torch.quantile(floored, 0.5)
    return median / (median + floored)


def turn_weights(deltas: torch.Tensor, correct: bool, eta: float = 0.2, eps: float = 1e-6) -> torch.Tensor:
    """w_t = clip(r_t * (1 + eta*(1 - 2*o)), 0, 1): turns of a failed rollout count more, of a right one less."""
    return (reliability(deltas, eps) * (1 + eta * (1 - 2 * int(correct)))).clamp(0, 1)

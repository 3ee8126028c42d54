"""The two rules of the paper: which tokens of a reply the entropy mask keeps, and how much a middle turn
weighs.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Literal

from smopd.lazy import torch

Interpolation = Literal["linear", "lower", "higher", "midpoint", "nearest"]


def keep_mask(
    entropy: torch.Tensor, keep: float = 0.8, interpolation: Interpolation = "linear"
) -> torch.Tensor:
    """True for the tokens whose entropy reaches the reply's (1 - keep) quantile; ties are kept."""
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


def reliability(deltas: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """r_t = med / (med + D_t) over the eligible turns of one rollout, D = max(delta, eps)."""
    floored = deltas.detach().clamp_min(eps)
    if floored.numel() == 0:
        return floored
    # torch.median takes the lower of two middle values; the paper's median is their mean
    median = torch.quantile(floored, 0.5)
    return median / (median + floored)


def turn_weights(deltas: torch.Tensor, correct: bool, eta: float = 0.2, eps: float = 1e-6) -> torch.Tensor:
    """w_t = clip(r_t * (1 + eta*(1 - 2*o)), 0, 1): turns of a failed rollout count more."""
    return (reliability(deltas, eps) * (1 + eta * (1 - 2 * int(correct)))).clamp(0, 1)

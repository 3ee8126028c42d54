"""Caps: how much of a token's cost counts, and whether a token over the cap still has a gradient."""

from dataclasses import dataclass
from math import inf

import torch


@dataclass(frozen=True)
class Cap:
    """min(cost, limit); over the limit no gradient, or (`keeps_direction`) one that is shortened."""

    limit: float = inf
    keeps_direction: bool = False

    def __str__(self) -> str:
        return f"{'scale' if self.keeps_direction else 'hard'}({self.limit:g})"

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """What counts of each token's cost, differentiable."""
        if self.keeps_direction:
            return cost * (self.limit / cost.detach()).clamp_max(1)
        return cost.clamp_max(self.limit)

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        """Which tokens cost more than the limit."""
        return cost > self.limit

    def moves(self, cost: torch.Tensor) -> torch.Tensor:
        """Which tokens keep a gradient."""
        return torch.ones_like(cost, dtype=torch.bool) if self.keeps_direction else cost <= self.limit


no_cap = Cap()


def hard(limit: float) -> Cap:
    """No gradient above the limit."""
    return Cap(limit)


def scale(limit: float) -> Cap:
    """The value is capped, the gradient's direction kept."""
    return Cap(limit, keeps_direction=True)

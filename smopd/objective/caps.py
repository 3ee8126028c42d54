"""Caps: how much of a token's cost counts, and whether a token over the cap still has a gradient."""

from dataclasses import dataclass
from typing import Protocol

import torch


class Cap(Protocol):
    """A cap of one token's cost."""

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """What counts of each token's cost, differentiable."""

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        """Which tokens cost more than the cap."""

    def moves(self, cost: torch.Tensor) -> torch.Tensor:
        """Which tokens keep a gradient."""


@dataclass(frozen=True)
class NoCap:
    """Everything counts as it is."""

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """The cost itself."""
        return cost

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        """None."""
        return torch.zeros_like(cost, dtype=torch.bool)

    def moves(self, cost: torch.Tensor) -> torch.Tensor:
        """All."""
        return torch.ones_like(cost, dtype=torch.bool)


@dataclass(frozen=True)
class Hard:
    """min(cost, limit): a token over the limit has no gradient."""

    limit: float

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """The smaller of the two."""
        return cost.clamp_max(self.limit)

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        """Those above the limit."""
        return cost > self.limit

    def moves(self, cost: torch.Tensor) -> torch.Tensor:
        """Those not above it."""
        return cost <= self.limit


@dataclass(frozen=True)
class Scale(Hard):
    """A token over the limit counts as the limit and keeps its gradient's direction, shortened."""

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """The cost, scaled down to the limit by a factor without gradient."""
        return cost * (self.limit / cost.detach()).clamp_max(1)

    def moves(self, cost: torch.Tensor) -> torch.Tensor:
        """All."""
        return torch.ones_like(cost, dtype=torch.bool)


no_cap = NoCap()


def hard(limit: float) -> Hard:
    """No gradient above the limit."""
    return Hard(limit)


def scale(limit: float) -> Scale:
    """The value is capped, the gradient's direction kept."""
    return Scale(limit)

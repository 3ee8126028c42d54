"""Caps: how much of a token's cost counts, and whether a token over the cap still has a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from smopd.lazy import torch
from smopd.plugins import is_number, require


@dataclass(frozen=True)
class Cap:
    """min(cost, limit); over the limit no gradient, or (`keeps_direction`) one that is shortened."""

    limit: float = inf
    keeps_direction: bool = False

    def __post_init__(self) -> None:
        fine = (is_number(self.limit) or self.limit == inf) and self.limit >= 0
        require(fine, "a cap's limit", self.limit, "a number that is not negative")

    def __str__(self) -> str:
        return f"{'scale' if self.keeps_direction else 'hard'}({self.limit:g})"

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """What counts of each token's cost, differentiable."""
        if self.keeps_direction and self.limit < inf:
            # 1 up to the limit, also for a cost that rounding has made negative
            return cost * (self.limit / cost.detach().clamp_min(self.limit))
        return cost.clamp_max(self.limit)

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        return cost > self.limit

    def has_gradient(self, cost: torch.Tensor) -> torch.Tensor:
        """Which tokens keep a gradient. A cost that is not a number does: it must be seen in the gradient."""
        return torch.ones_like(cost, dtype=torch.bool) if self.keeps_direction else ~self.over(cost)


@dataclass(frozen=True)
class SoftCap(Cap):
    """limit * log(1 + cost / limit): grows ever more slowly, and every token keeps a gradient."""

    def __str__(self) -> str:
        return f"soft({self.limit:g})"

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        return cost if self.limit == inf else self.limit * (cost / self.limit).log1p()

    def has_gradient(self, cost: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(cost, dtype=torch.bool)


FLOOR = 1e-6  # nats: where student and teacher agree, a median is rounding


@dataclass(frozen=True)
class RelativeCap(Cap):
    """A hard cap at `limit` times the median cost of the reply's tokens, or FLOOR where that is rounding.

    A small median is inexact in float32, and the limit with it: capped losses are the same to three digits.
    """

    def __str__(self) -> str:
        return f"relative({self.limit:g})"

    def _limit_of(self, cost: torch.Tensor) -> torch.Tensor:
        """A scalar on the tokens' device: no host waits for it."""
        if not len(cost) or self.limit == inf:
            return torch.full((), inf, dtype=cost.dtype, device=cost.device)
        median = torch.quantile(cost.detach(), 0.5).double().clamp_min(FLOOR)
        return (self.limit * median).to(cost.dtype)

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        return cost.clamp_max(self._limit_of(cost))

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        return cost > self._limit_of(cost)


no_cap = Cap()


def hard(limit: float) -> Cap:
    """No gradient above the limit."""
    return Cap(limit)


def soft(limit: float) -> Cap:
    """Costs above about the limit count by their logarithm: no token is without a gradient."""
    return SoftCap(limit)


def relative(times: float) -> Cap:
    """No gradient above so many times the median of the reply."""
    return RelativeCap(times)


def scale(limit: float) -> Cap:
    """The value is capped, the gradient's direction kept."""
    return Cap(limit, keeps_direction=True)

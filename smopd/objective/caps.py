"""Caps: how much of a token's cost counts, and whether a token over the cap still has a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from smopd.lazy import torch
from smopd.plugins import check_word, is_number, require

Kind = Literal["hard", "scale", "soft", "relative"]
FLOOR = 1e-6  # nats: where student and teacher agree, a median is rounding


@dataclass(frozen=True)
class Cap:
    """What counts of a token's cost, by `kind`:

    hard      min(cost, limit): no gradient over the limit
    scale     the same value; over the limit the gradient is shortened and keeps its direction
    soft      limit * log(1 + cost / limit): grows ever more slowly, and every token keeps a gradient
    relative  hard, at `limit` times the median cost of the reply's tokens, or FLOOR where that is rounding;
              a small median is inexact in float32, so capped losses are the same to three digits
    """

    limit: float = inf
    kind: Kind = "hard"

    def __post_init__(self) -> None:
        check_word("a cap's kind", self.kind, get_args(Kind))
        fine = (is_number(self.limit) or self.limit == inf) and self.limit >= 0
        require(fine, "a cap's limit", self.limit, "a number that is not negative")

    def __str__(self) -> str:
        return f"{self.kind}({self.limit:g})"

    def _threshold(self, cost: torch.Tensor) -> torch.Tensor | float:
        """In nats; one of a median is a scalar on the tokens' device: no host waits for it."""
        if self.kind != "relative" or self.limit == inf or not len(cost):
            return self.limit
        median = torch.quantile(cost.detach(), 0.5).double().clamp_min(FLOOR)
        return (self.limit * median).to(cost.dtype)

    def apply(self, cost: torch.Tensor) -> torch.Tensor:
        """What counts of each token's cost, differentiable."""
        if self.kind == "scale" and self.limit < inf:
            # 1 up to the limit, also for a cost that rounding has made negative
            return cost * (self.limit / cost.detach().clamp_min(self.limit))
        if self.kind == "soft":
            return cost if self.limit == inf else self.limit * (cost / self.limit).log1p()
        return cost.clamp_max(self._threshold(cost))

    def over(self, cost: torch.Tensor) -> torch.Tensor:
        return cost > self._threshold(cost)

    def has_gradient(self, cost: torch.Tensor) -> torch.Tensor:
        """Which tokens keep a gradient. A cost that is not a number does: it must be seen in the gradient."""
        return torch.ones_like(cost, dtype=torch.bool) if self.kind in ("scale", "soft") else ~self.over(cost)


no_cap = Cap()


def hard(limit: float) -> Cap:
    return Cap(limit)


def scale(limit: float) -> Cap:
    return Cap(limit, "scale")


def soft(limit: float) -> Cap:
    return Cap(limit, "soft")


def relative(times: float) -> Cap:
    return Cap(times, "relative")

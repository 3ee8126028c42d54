"""Turn weights: what a reply counts among the replies of its rollout that a term is about. All of it is
detached.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from smopd.objective.selection import turn_weights
from smopd.rollout.play import Reply
from smopd.scoring.stats import TokenStats


@dataclass(frozen=True)
class Turns:
    """The replies of one rollout that a term is about, with their statistics."""

    replies: Sequence[Reply]
    stats: Sequence[TokenStats]
    correct: bool  # whether the rollout's answer was judged right

    @cached_property
    def deltas(self) -> torch.Tensor:
        """Mean |log s(y) - log t(y)| over all tokens of each reply."""
        return torch.stack([(s.student_logp - s.teacher_logp).abs().mean() for s in self.stats])


TurnWeight = Callable[[Turns], torch.Tensor]  # -> a weight for each reply


def uniform(turns: Turns) -> torch.Tensor:
    """All alike."""
    return turns.stats[0].entropy.new_ones(len(turns.stats))


@dataclass(frozen=True)
class Reliability:
    """med / (med + delta_t), times 1 + eta if the answer is wrong, 1 - eta if it is right."""

    eta: float = 0.0
    eps: float = 1e-6

    def __call__(self, turns: Turns) -> torch.Tensor:
        return turn_weights(turns.deltas, turns.correct, self.eta, self.eps)


def reliability_weight(eta: float = 0.0, eps: float = 1e-6) -> Reliability:
    """Turns on which student and teacher disagree much count less; `eta` lets the outcome move them."""
    return Reliability(eta, eps)

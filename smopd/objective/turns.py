"""Turn weights: what a reply counts among those of its rollout that a term is about. All are detached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from smopd.lazy import torch
from smopd.objective.tokens import set_name
from smopd.rollout.play import Reply
from smopd.scoring.stats import TokenStats


@dataclass(frozen=True)
class Turns:
    replies: Sequence[Reply]
    stats: Sequence[TokenStats]
    correct: bool  # whether the rollout's answer was judged right

    @cached_property
    def gaps(self) -> torch.Tensor:
        """Mean log s(y) - log t(y) over all tokens of each reply."""
        return torch.stack([(s.student_logp - s.teacher_logp).mean() for s in self.stats])

    @cached_property
    def deltas(self) -> torch.Tensor:
        """Mean |log s(y) - log t(y)| over all tokens of each reply."""
        return torch.stack([(s.student_logp - s.teacher_logp).abs().mean() for s in self.stats])


TurnWeight = Callable[[Turns], "torch.Tensor"]  # -> a weight for each reply


def uniform(turns: Turns) -> torch.Tensor:
    return turns.stats[0].entropy.new_ones(len(turns.stats))


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


@dataclass(frozen=True)
class Reliability:
    """med / (med + delta_t), times 1 + eta if the answer is wrong, 1 - eta if it is right."""

    eta: float = 0.0
    eps: float = 1e-6

    def __call__(self, turns: Turns) -> torch.Tensor:
        return turn_weights(turns.deltas, turns.correct, self.eta, self.eps)


def reliability_weight(eta: float = 0.0, eps: float = 1e-6) -> Reliability:
    return Reliability(eta, eps)


@cache
def step_ratio(margin: float = 0.2, eps: float = 1e-6, start: int = 1) -> TurnWeight:
    """The product over earlier turns of (delta_u + eps) / (delta_u+1 + eps), at most 1 + `margin`: 1 at the
    first turn, less where student and teacher have drifted apart since. Turns before `start`, from 1, are
    0 and no factor.
    """

    def weight(turns: Turns) -> torch.Tensor:
        floored = turns.deltas + eps
        early = sum(reply.turn < start - 1 for reply in turns.replies)
        later = floored[early:]
        ratios = (later[:1] / later).clamp_max(1 + margin)  # all factors between cancel
        return torch.cat([torch.zeros_like(floored[:early]), ratios])

    return set_name(weight, f"step_ratio({margin:g}, start={start})")


@cache
def last_of_sampled(eps: float = 1e-6) -> TurnWeight:
    """Only the last of the replies counts (`up_to_one_sampled` drew it): med / (med + d), where d is its
    signed gap floored at eps and med the median of those of all replies given.
    """

    def weight(turns: Turns) -> torch.Tensor:
        weights = torch.zeros_like(turns.gaps)
        # Times their number: the mean over the replies is to be the drawn one's loss.
        weights[-1] = reliability(turns.gaps, eps)[-1] * len(weights)
        return weights

    return set_name(weight, "last_of_sampled")


def confidence(turns: Turns) -> torch.Tensor:
    """The teacher's mean highest probability; divided once for the rollout, by the sum of weight * tokens."""
    tops = [s.teacher_top for s in turns.stats]
    sure = torch.stack([top.exp().mean() for top in tops if top is not None])
    counted = sure * sure.new_tensor([float(len(s.entropy)) for s in turns.stats])
    return counted / counted.sum() * len(sure)  # times a reply's mean over its tokens


def summed(turns: Turns) -> torch.Tensor:
    """The sum over the replies instead of their mean."""
    return uniform(turns) * len(turns.stats)

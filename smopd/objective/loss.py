"""One scalar from one rollout: the clipped, masked, weighted sum of SPEC section 2, steps 3 to 6.

It sees vectors of per-token statistics only; where they come from (full logits, a fused kernel, packed or padded) is not its
business.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from smopd.objective.selection import Interpolation, keep_mask, turn_weights
from smopd.scoring.stats import TokenStats


@dataclass(frozen=True)
class RolloutLoss:
    """The loss of one rollout with its parts and what the metrics want to know (all but `total` detached)."""

    total: torch.Tensor
    middle: torch.Tensor
    answer: torch.Tensor
    full: torch.Tensor
    deltas: torch.Tensor
    weights: torch.Tensor
    kept: int
    middle_tokens: int
    clipped: dict[str, tuple[int, int]]  # part -> (clipped positions that would have carried loss, positions that carry loss)


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
    importance: Sequence[torch.Tensor] | None = None,
) -> RolloutLoss:
    """L_mid + L_answer (+ L_full where that branch was drawn). Replies without tokens are not eligible and add nothing.

    `keep` is the ratio in force at this step: 1 while the mask is off. `importance` holds a detached factor for every token, a
    vector for each of the middle replies, the answer and the FULL reply that are given, in this order.
    """
    factors = _factors([*middle, answer, full], importance)
    eligible = [stats for stats in middle if stats.divergence.numel()]
    like = next((s.divergence for s in [*eligible, answer, full] if s is not None and s.divergence.numel()), torch.zeros(1))
    zero = like.new_zeros(())
    deltas = torch.stack([_delta(stats) for stats in eligible]) if eligible else like.new_zeros(0)
    weights = turn_weights(deltas, correct, eta, eps).to(like.dtype)
    masks = [keep_mask(stats.entropy, keep, interpolation) for stats in eligible]
    turns = [
        weight * _carried(stats, clip, factors)[mask].mean() for weight, stats, mask in zip(weights, eligible, masks, strict=True)
    ]
    middle_loss = torch.stack(turns).mean() if turns else zero
    answer_loss, full_loss = _mean(answer, clip, zero, factors), _mean(full, clip, zero, factors)
    over = sum(int((s.divergence[m] > clip).sum()) for s, m in zip(eligible, masks, strict=True))
    kept = sum(int(m.sum()) for m in masks)
    return RolloutLoss(
        total=middle_loss + answer_loss + full_loss,
        middle=middle_loss.detach(),
        answer=answer_loss.detach(),
        full=full_loss.detach(),
        deltas=deltas,
        weights=weights,
        kept=kept,
        middle_tokens=sum(m.numel() for m in masks),
        clipped={"middle": (over, kept), "answer": _over(answer, clip), "full": _over(full, clip)},
    )


def _delta(stats: TokenStats) -> torch.Tensor:
    """Mean absolute difference of the sampled tokens' log-probabilities, over all tokens of the reply."""
    return (stats.student_logp - stats.teacher_logp).abs().mean().detach()


def _factors(replies: Sequence[TokenStats | None], importance: Sequence[torch.Tensor] | None) -> dict[int, torch.Tensor]:
    """Each given reply's factors, found by the reply's identity."""
    given = [stats for stats in replies if stats is not None]
    return {} if importance is None else {id(stats): own for stats, own in zip(given, importance, strict=True)}


def _carried(stats: TokenStats, clip: float, factors: dict[int, torch.Tensor]) -> torch.Tensor:
    """What each token brings into the mean: its divergence, capped, times its factor."""
    capped = stats.divergence.clamp_max(clip)
    return capped * factors[id(stats)] if factors else capped


def _mean(stats: TokenStats | None, clip: float, zero: torch.Tensor, factors: dict[int, torch.Tensor]) -> torch.Tensor:
    return zero if stats is None or not stats.divergence.numel() else _carried(stats, clip, factors).mean()


def _over(stats: TokenStats | None, clip: float) -> tuple[int, int]:
    return (0, 0) if stats is None else (int((stats.divergence > clip).sum()), stats.divergence.numel())

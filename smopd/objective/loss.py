"""One scalar from one rollout: the clipped, masked, weighted sum of SPEC section 2, steps 3 to 6.

It sees vectors of per-token statistics only; where they come from (full logits, a fused kernel, packed or
padded) is not its business. Beside the paper's loss it knows the controls the paper asks for: other rankings
of the mask, a fixed denominator, and a cap that keeps the gradient's direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from smopd.objective.selection import Interpolation, Ranking, select, turn_weights
from smopd.scoring.stats import TokenStats

Denominator = Literal["kept", "all"]
ClipMode = Literal["hard", "scale"]


@dataclass(frozen=True)
class RolloutLoss:
    """The loss of one rollout with its parts and what the metrics want to know (all but `total` detached)."""

    total: torch.Tensor
    middle: torch.Tensor
    answer: torch.Tensor
    full: torch.Tensor
    deltas: torch.Tensor
    weights: torch.Tensor
    masks: tuple[torch.Tensor, ...]  # of the eligible middle replies: which tokens carry loss
    kept: int
    middle_tokens: int
    clipped: dict[
        str, tuple[int, int]
    ]  # part -> (clipped positions that would have carried loss, positions that carry loss)


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
    ranking: Ranking = "entropy",
    noise: Sequence[torch.Tensor] | None = None,
    denominator: Denominator = "kept",
    clip_mode: ClipMode = "hard",
    importance: Sequence[torch.Tensor] | None = None,
) -> RolloutLoss:
    """L_mid + L_answer (+ L_full where that branch was drawn). Replies without tokens are not eligible and
    add nothing.

    `keep` is the ratio in force at this step: 1 while the mask is off. The mask keeps the highest of a
    `ranking`; for a random one `noise` holds a vector for each of the middle replies. `denominator` "all"
    divides what the kept tokens carry by the length of the reply. `clip_mode` "scale" caps a token's value
    but lets its gradient through, shortened in the same proportion. `importance` holds a detached factor for
    every token, a vector for each of the middle replies, the answer and the FULL reply that are given, in
    this order.
    """
    if noise is not None and len(noise) != len(middle):
        raise ValueError(
            f"noise must hold a vector for each of the {len(middle)} middle replies, found {len(noise)}"
        )
    factors = _factors([*middle, answer, full], importance)
    draws: Sequence[torch.Tensor | None] = noise if noise is not None else [None] * len(middle)
    drawn = [(stats, own) for stats, own in zip(middle, draws, strict=True) if stats.divergence.numel()]
    eligible = [stats for stats, _ in drawn]
    like = next(
        (s.divergence for s in [*eligible, answer, full] if s is not None and s.divergence.numel()),
        torch.zeros(1),
    )
    zero = like.new_zeros(())
    deltas = torch.stack([_delta(stats) for stats in eligible]) if eligible else like.new_zeros(0)
    weights = turn_weights(deltas, correct, eta, eps).to(like.dtype)
    masks = tuple(select(stats, keep, ranking, interpolation, own) for stats, own in drawn)
    carried = [_carried(stats, clip, clip_mode, factors) for stats in eligible]
    counts = [
        len(own) if denominator == "all" else int(mask.sum())
        for own, mask in zip(carried, masks, strict=True)
    ]
    turns = [
        weight * own[mask].sum() / count
        for weight, own, mask, count in zip(weights, carried, masks, counts, strict=True)
    ]
    middle_loss = torch.stack(turns).mean() if turns else zero
    answer_loss, full_loss = (
        zero
        if part is None or not part.divergence.numel()
        else _carried(part, clip, clip_mode, factors).mean()
        for part in (answer, full)
    )
    over = sum(int((s.divergence[m] > clip).sum()) for s, m in zip(eligible, masks, strict=True))
    kept = sum(int(m.sum()) for m in masks)
    return RolloutLoss(
        total=middle_loss + answer_loss + full_loss,
        middle=middle_loss.detach(),
        answer=answer_loss.detach(),
        full=full_loss.detach(),
        deltas=deltas,
        weights=weights,
        masks=masks,
        kept=kept,
        middle_tokens=sum(m.numel() for m in masks),
        clipped={"middle": (over, kept), "answer": _over(answer, clip), "full": _over(full, clip)},
    )


def _delta(stats: TokenStats) -> torch.Tensor:
    """Mean absolute difference of the sampled tokens' log-probabilities, over all tokens of the reply."""
    return (stats.student_logp - stats.teacher_logp).abs().mean().detach()


def _factors(
    replies: Sequence[TokenStats | None], importance: Sequence[torch.Tensor] | None
) -> dict[int, torch.Tensor]:
    """Each given reply's factors, found by the reply's identity."""
    given = [stats for stats in replies if stats is not None]
    return (
        {} if importance is None else {id(stats): own for stats, own in zip(given, importance, strict=True)}
    )


def _carried(
    stats: TokenStats, clip: float, mode: ClipMode, factors: dict[int, torch.Tensor]
) -> torch.Tensor:
    """What each token brings into the mean: its divergence, capped, times its factor."""
    if mode == "hard":
        capped = stats.divergence.clamp_max(clip)
    else:
        capped = stats.divergence * (clip / stats.divergence.detach()).clamp_max(1)
    return capped * factors[id(stats)] if factors else capped


def _over(stats: TokenStats | None, clip: float) -> tuple[int, int]:
    return (0, 0) if stats is None else (int((stats.divergence > clip).sum()), stats.divergence.numel())

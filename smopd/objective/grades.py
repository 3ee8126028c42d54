"""Grades: from the verdicts of a group, the rollouts of one example, to their advantages."""

from collections.abc import Sequence
from statistics import fmean, pstdev, stdev

from smopd.rollout.play import Rollout


def centred(
    rewards: Sequence[float], scaled: bool = True, eps: float = 1e-6, unbiased: bool = False
) -> list[float]:
    """Each reward less the group's mean, and divided by its standard deviation; all 0 where none differs.

    `unbiased`: the deviation's sum of squares is divided by one less than the group's size.
    """
    mean, spread = fmean(rewards), pstdev(rewards)
    divisor = ((stdev(rewards) if unbiased and spread else spread) + eps) if scaled else 1.0
    return [(reward - mean) / divisor for reward in rewards] if spread else [0.0] * len(rewards)


def outcomes(rollouts: Sequence[Rollout]) -> list[float]:
    """1 for a right answer, 0 for a wrong one."""
    return [float(rollout.correct) for rollout in rollouts]


def group_centred(rollouts: Sequence[Rollout]) -> list[float]:
    """The outcome, centred and scaled within the group."""
    return centred(outcomes(rollouts))

"""Grades: from the verdicts of a group, the rollouts of one example, to their advantages."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev, stdev
from typing import Any

from smopd.plugins import calling, is_number, unexpected
from smopd.rollout.play import Rollout, graded

Grade = Callable[[Sequence[Rollout]], Sequence[float]]  # the rollouts of one example -> their advantages


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


def grade_groups(rollouts: Sequence[Rollout], grade: Grade) -> list[Rollout]:
    """Every rollout with its advantage among the rollouts of the same example, in their order."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, rollout in enumerate(rollouts):
        groups[rollout.example.id].append(number)
    advantages = [0.0] * len(rollouts)
    for numbers in groups.values():
        with calling(grade, lambda: f"grade `{getattr(grade, '__name__', 'grade')}`"):
            values = _advantages(grade([rollouts[k] for k in numbers]), len(numbers))
        for number, advantage in zip(numbers, values, strict=True):
            advantages[number] = advantage
    return graded(rollouts, advantages)


def _advantages(given: Any, count: int) -> list[float]:
    values = given.tolist() if hasattr(given, "tolist") else given  # a tensor or an array of numbers
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise unexpected(given, f"{count} numbers, one for each rollout of the group")
    for value in values:
        if not is_number(value):
            raise unexpected(value, "a finite number for each rollout")
    return [float(value) for value in values]

"""The rollouts of a group (one drawn example's) compared: advantages of verdicts, weights of statistics."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import exp
from statistics import fmean, pstdev, stdev
from typing import Any

from smopd.lazy import torch
from smopd.objective.tokens import Tokens, Weight
from smopd.plugins import calling, is_number, unexpected
from smopd.rollout.play import Group, Reply, Rollout, graded, group_of

Grade = Callable[[Sequence[Rollout]], Sequence[float]]  # the rollouts of one group -> their advantages


def centred(
    rewards: Sequence[float], scaled: bool = True, eps: float = 1e-6, unbiased: bool = False
) -> list[float]:
    """Each reward less the mean, over the (`unbiased`) standard deviation; all 0 where none differs."""
    mean, spread = fmean(rewards), pstdev(rewards)
    divisor = ((stdev(rewards) if unbiased and spread else spread) + eps) if scaled else 1.0
    return [(reward - mean) / divisor for reward in rewards] if spread else [0.0] * len(rewards)


def outcomes(rollouts: Sequence[Rollout]) -> list[float]:
    return [float(rollout.correct) for rollout in rollouts]


def group_centred(rollouts: Sequence[Rollout]) -> list[float]:
    """The outcome, centred and scaled within the group."""
    return centred(outcomes(rollouts))


def grade_groups(rollouts: Sequence[Rollout], grade: Grade) -> list[Rollout]:
    """Every rollout with its advantage among the rollouts of its group, in their order."""
    advantages = [0.0] * len(rollouts)
    for numbers in _group_indices(rollouts):
        with calling(grade, lambda: f"grade `{getattr(grade, '__name__', 'grade')}`"):
            values = _check_advantages(grade([rollouts[k] for k in numbers]), len(numbers))
        for number, advantage in zip(numbers, values, strict=True):
            advantages[number] = float(advantage)
    return graded(rollouts, advantages)


def _group_indices(played: Sequence[Reply | Rollout]) -> list[list[int]]:
    groups: dict[Group, list[int]] = defaultdict(list)
    for number, one in enumerate(played):
        groups[group_of(one)].append(number)
    return list(groups.values())


def _check_advantages(returned: Any, count: int) -> Sequence[Any]:
    values = returned.tolist() if hasattr(returned, "tolist") else returned  # a tensor or an array of numbers
    if not isinstance(values, (list, tuple)) or len(values) != count:
        raise unexpected(returned, f"{count} numbers, one for each rollout of the group")
    if wrong := [value for value in values if not is_number(value)]:
        raise unexpected(wrong[0], "a finite number for each rollout")
    return values


def _group_weight(text: str, values: Callable[[list[Tokens]], list[float]], **known: Any) -> Weight:
    """A weight by what `values` makes of the replies of one group, wherever in the step they are scored."""

    def over(replies: Sequence[Tokens]) -> list[Any]:
        weights: list[Any] = [None] * len(replies)
        for numbers in _group_indices([tokens.reply for tokens in replies]):
            for k, value in zip(numbers, values([replies[k] for k in numbers]), strict=True):
                weights[k] = torch.full_like(replies[k].entropy, value)
        return weights

    return Weight(text, over, "batch", **known)


def group_share(logps: str, slope: float) -> Weight:
    """softmax(slope * mean log-probability) of a rollout in its group; `logps` names a column of `Tokens`."""

    def shares(group: list[Tokens]) -> list[float]:
        by_sample: dict[int, list[float]] = defaultdict(list)
        for tokens in group:
            by_sample[tokens.reply.sample] += getattr(tokens, logps).tolist()
        scores = {sample: slope * fmean(values) for sample, values in by_sample.items()}
        return [1 / sum(exp(score - scores[t.reply.sample]) for score in scores.values()) for t in group]

    return _group_weight(f"group_share({logps}, {slope:g})", shares, selects=False)


def group_advantage(reward: Callable[[Tokens], float], eps: float = 1e-6, unbiased: bool = False) -> Weight:
    """Each reply's reward, centred and scaled among the replies of the same group (see `centred`).

    For rewards that need token statistics; one that needs verdicts alone is a plan's `grade`.
    """

    def advantages(group: list[Tokens]) -> list[float]:
        return centred([reward(tokens) for tokens in group], eps=eps, unbiased=unbiased)

    name = getattr(reward, "__name__", "reward")
    return _group_weight(f"group_advantage({name})", advantages, function=reward)

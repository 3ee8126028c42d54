"""Token weights that compare the rollouts of one group. They look at all replies of the step that a term is
about, so a group may be spread over micro-batches and processes.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import exp
from statistics import fmean
from typing import Any

import torch

from smopd.objective.grades import centred
from smopd.objective.tokens import Tokens, Weight
from smopd.rollout.play import Group, group_of


def group_share(logps: str, slope: float) -> Weight:
    """softmax(slope * mean log-probability) of a rollout among those of its group that a term is about.

    `logps` names the column of `Tokens`.
    """

    def over(replies: Sequence[Tokens]) -> list[Any]:
        found: dict[Group, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for tokens in replies:
            found[group_of(tokens.reply)][tokens.reply.sample] += getattr(tokens, logps).tolist()
        weights = []
        for tokens in replies:
            group = found[group_of(tokens.reply)]
            scores = {sample: slope * fmean(values) for sample, values in group.items()}
            share = 1 / sum(exp(score - scores[tokens.reply.sample]) for score in scores.values())
            weights.append(torch.full_like(tokens.entropy, share))
        return weights

    return Weight(f"group_share({logps}, {slope:g})", over, "batch", selects=False)


def group_advantage(reward: Callable[[Tokens], float], eps: float = 1e-6, unbiased: bool = False) -> Weight:
    """Each reply's reward, centred and scaled among the replies of the same group (see `centred`).

    For rewards that need token statistics; one that needs verdicts alone is a plan's `grade`.
    """

    def over(replies: Sequence[Tokens]) -> list[Any]:
        groups: dict[Group, list[int]] = defaultdict(list)
        for number, tokens in enumerate(replies):
            groups[group_of(tokens.reply)].append(number)
        weights: list[Any] = [None] * len(replies)
        for group in groups.values():
            advantages = centred([reward(replies[k]) for k in group], eps=eps, unbiased=unbiased)
            for k, value in zip(group, advantages, strict=True):
                weights[k] = replies[k].entropy.new_full(replies[k].entropy.shape, value)
        return weights

    name = getattr(reward, "__name__", "reward")
    return Weight(f"group_advantage({name})", over, "batch", function=reward)

"""Token weights that compare the rollouts of one example. They look at all replies of the step that a term is
about, so a group may be spread over micro-batches and processes.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import exp
from statistics import fmean
from typing import Any

from smopd.objective.grades import centred
from smopd.objective.tokens import Tokens, Weight


def group_share(logps: str, slope: float, samples: int) -> Weight:
    """softmax(slope * mean log-probability) of a rollout among those of its example that a term is about.

    `logps` names the column of `Tokens`. Times samples * replies: of a mean over rollouts and their replies
    it makes a sum over the rollouts of an example, and a mean over examples.
    """

    def over(replies: Sequence[Tokens]) -> list[Any]:
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        counts: dict[tuple[str, int], int] = defaultdict(int)
        for tokens in replies:
            example, sample = tokens.reply.example.id, tokens.reply.sample
            found[example][sample] += getattr(tokens, logps).tolist()
            counts[example, sample] += 1
        weights = []
        for tokens in replies:
            example, sample = tokens.reply.example.id, tokens.reply.sample
            scores = {number: slope * fmean(values) for number, values in found[example].items()}
            share = 1 / sum(exp(score - scores[sample]) for score in scores.values())
            weights.append(tokens.entropy.new_full((), share * samples * counts[example, sample]))
        return [w.expand_as(tokens.entropy) for w, tokens in zip(weights, replies, strict=True)]

    return Weight(f"group_share({logps}, {slope:g})", over, "batch", selects=False)


def group_advantage(reward: Callable[[Tokens], float], eps: float = 1e-6, unbiased: bool = False) -> Weight:
    """Each reply's reward, centred and scaled among the replies to the same example (see `centred`).

    For rewards that need token statistics; one that needs verdicts alone is a plan's `grade`.
    """

    def over(replies: Sequence[Tokens]) -> list[Any]:
        groups = defaultdict(list)
        for number, tokens in enumerate(replies):
            groups[tokens.reply.example.id].append(number)
        weights: list[Any] = [None] * len(replies)
        for group in groups.values():
            advantages = centred([reward(replies[k]) for k in group], eps=eps, unbiased=unbiased)
            for k, value in zip(group, advantages, strict=True):
                weights[k] = replies[k].entropy.new_full(replies[k].entropy.shape, value)
        return weights

    name = getattr(reward, "__name__", "reward")
    return Weight(f"group_advantage({name})", over, "batch", function=reward)

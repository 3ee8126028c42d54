"""SCOPE (arXiv 2604.10688): right rollouts by their likelihood, wrong ones by the teacher's log-ratio, each
weighed against its group by perplexity.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import exp
from statistics import fmean
from typing import Any

from pydantic import Field

from smopd import objective as parts
from smopd import scoring
from smopd.methods import Method
from smopd.rollout.play import Play
from smopd.settings import Section


class Settings(Section):
    """The loss of SCOPE."""

    samples: int = Field(8, ge=1, description="rollouts of each example")
    tau: float = Field(1.0, gt=0, description="temperature of the softmax over mean log-probabilities")


def shares(logps: str, slope: float, samples: int) -> "parts.Weight":
    """softmax(slope * mean log-probability) of a rollout among those of its example that a term is about.

    Times samples * replies: of a mean over rollouts and their replies it makes a sum over the rollouts of an
    example, and a mean over examples.
    """

    def over(replies: Sequence[Any]) -> list[Any]:
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

    return parts.Weight(f"shares({logps}, {slope:g})", over, "batch", selects=False)


def plan(s: Settings) -> "parts.Plan":
    """What the settings mean."""
    right, wrong = (parts.judged(parts.sharded, correct) for correct in (True, False))
    trusted = parts.product(shares("teacher_logp", 1 / s.tau, s.samples), parts.log_ratio)
    return parts.Plan(
        (Play(samples=s.samples),),
        (
            parts.Term("right", right, None, scoring.sampled_nll(),
                       shares("student_logp", -1 / s.tau, s.samples), mean_over="sum"),
            parts.Term("wrong", wrong, parts.clean, scoring.sampled_nll(), trusted, mean_over="sum"),
        ),
    )  # fmt: skip


METHODS = [
    Method(
        "scope", "SCOPE: right and wrong rollouts apart, weighed by perplexity",
        "Likelihood of right rollouts the student finds odd; log-ratio on wrong ones the teacher follows.",
        "SCOPE, arXiv 2604.10688", Settings, plan, {}, "compared",
        formula="right: w = PPL_S^(1/tau) / sum over the example's right rollouts, loss -w sum log S(y); "
        "wrong: w = PPL_T^(-1/tau) / sum over its wrong ones, loss w sum sg[log S(y) - log T(y)] log S(y); "
        "summed over an example's rollouts and their tokens, mean over the examples of the step.",
        choices="Teacher: the EMA under the clean context (the paper's is a larger model). A rollout is its "
        "sharded replies together; perplexity is over all their tokens. One update a step: the ratio to the "
        "old policy is 1. The released code weighs right rollouts the other way round and multiplies by "
        "their number; here as the paper has it. Its own training: lr 5e-5, batch 256, temperature 0.6.",
    )
]  # fmt: skip

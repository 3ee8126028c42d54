"""RLSTA (arXiv 2603.04783): GRPO on the answer, rewarded also for its likelihood given the complete task."""

from dataclasses import replace
from math import exp
from typing import Any

from smopd.chat.messages import full_messages
from smopd.methods import Field, Method, Peers, Play, Reply, Section, parts, scoring


class Settings(Section):
    samples: int = Field(8, ge=2, le=1024, description="rollouts of each example")
    anchor: float = Field(1.0, ge=0, description="scale of the likelihood in the reward; 0 = outcome alone")
    beta: float = Field(1e-4, ge=0, description="scale of the KL term to the base model")


def plan(s: Settings) -> "parts.Plan":
    def anchored(answer: "parts.Tokens") -> float:
        assert answer.auxiliary is not None
        right = answer.reply.verdict is not None and answer.reply.verdict.correct
        return right + s.anchor * exp(answer.auxiliary[:, 0].mean().item()) / s.samples

    def single_turn(reply: Reply, peers: Peers) -> list[Any]:
        return [full_messages(reply.example)]

    policy = parts.Term(
        "policy", parts.answer, parts.dirty, scoring.sampled_nll(),
        parts.group_advantage(anchored, eps=1e-4, unbiased=True),
        mean_over="all", per="batch", weights="base", auxiliary=parts.Auxiliary(single_turn, "base"),
    )  # fmt: skip
    kl = replace(policy, name="kl", loss=scoring.sampled_kl(), tokens=parts.every_token, scale=s.beta)
    return parts.Plan((Play(samples=s.samples),), (policy, kl))


METHODS = [Method(
    name="rlsta", title="RLSTA: reinforcement learning with single-turn anchors",
    summary="GRPO on the answer turn; to the outcome is added its likelihood given the complete task.",
    paper="RLSTA, arXiv 2603.04783", section=Settings, plan=plan, group="baselines",
    formula="r = o + exp(mean log P(y | FULL))/n, P the base model; A = (r - mean r)/(std r + 1e-4) in an "
    "example's n rollouts, std unbiased; L = (1/answer tokens of the step) sum of -A log S(y) + beta (R - "
    "log R - 1), R = P(y | the student's context)/S(y).",
    choices="Each rollout has a history of its own (theirs share a fixed one, of examples filtered for a "
    "gap). FULL is the complete task, not the shards in one message. A group is its answers that have "
    "tokens. One update a step, so the clip is idle. The released code makes, and does not use, a mask for "
    "wrong answers. Its own lr: 3e-7.",
)]  # fmt: skip

"""References of the baselines."""

from typing import Any

import numpy as np
import torch
from methods.references import Step, prompts, reference, sharded

from smopd.objective.tokens import Moment


@reference("grpo")
def grpo(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for group in prompts(step, s.samples):
        right = [float(replies[0].rollout.verdict.correct) for replies in group]
        for replies, outcome in zip(group, right, strict=True):
            advantage = (outcome - np.mean(right)) / (np.std(right) + 1e-6) if np.std(right) else 0.0
            for r in sharded(replies):
                total = total - advantage * r.of(r.log_s).sum()
                tokens += len(r.reply.tokens)
    return total / tokens


@reference("sft")
def sft(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    right = [r for replies in step for r in replies if r.rollout.verdict.correct]
    assert all(r.reply.view == "full" for r in right)
    return -torch.cat([r.of(r.log_s) for r in right]).mean()


@reference("rlsta", "objective.beta=0", "objective.beta=0.5", "objective.anchor=0")
def rlsta(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    costs = []
    for group in prompts(step, s.samples):
        answers = [r for replies in group for r in sharded(replies) if not r.middle]
        liked = [r.of(r.log_t(r.task, "base")).mean().exp().item() / s.samples for r in answers]
        rewards = [
            float(r.rollout.verdict.correct) + s.anchor * x for r, x in zip(answers, liked, strict=True)
        ]
        for r, reward in zip(answers, rewards, strict=True):
            advantage = 0.0
            if np.ptp(rewards):
                advantage = (reward - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-4)
            log_s = r.of(r.log_s)
            ratio = (r.of(r.log_t(r.reply.context, "base")) - log_s).exp()
            costs.append(-advantage * log_s + s.beta * (ratio - ratio.log() - 1))
    return torch.cat(costs).mean()

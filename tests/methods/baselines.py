"""References of what a user would pick instead."""

from typing import Any

import numpy as np
import torch
from methods.references import Step, reference, sharded

from smopd.objective.tokens import Moment


@reference("grpo")
def grpo(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    right: dict[str, list[float]] = {}
    for rollout in [replies[0].rollout for replies in step]:
        right.setdefault(rollout.example.id, []).append(float(rollout.verdict.correct))
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for replies in step:
        rollout = replies[0].rollout
        group = right[rollout.example.id]
        advantage = 0.0
        if np.std(group):
            advantage = (float(rollout.verdict.correct) - np.mean(group)) / (np.std(group) + 1e-6)
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
    answers = [r for replies in step for r in sharded(replies) if not r.middle]
    groups: dict[str, list[tuple[Any, float]]] = {}
    for r in answers:
        liked = r.of(r.log_t(r.task, "base")).mean().exp().item() / s.samples
        reward = float(r.rollout.verdict.correct) + s.anchor * liked
        groups.setdefault(r.reply.example.id, []).append((r, reward))
    costs = []
    for group in groups.values():
        rewards = [reward for _, reward in group]
        for r, reward in group:
            advantage = 0.0
            if np.ptp(rewards):
                advantage = (reward - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-4)
            log_s = r.of(r.log_s)
            ratio = (r.of(r.log_t(r.reply.context, "base")) - log_s).exp()
            costs.append(-advantage * log_s + s.beta * (ratio - ratio.log() - 1))
    return torch.cat(costs).mean()

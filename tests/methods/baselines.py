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

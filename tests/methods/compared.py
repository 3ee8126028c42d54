"""References of the systems that SMOPD's paper compares itself with."""

import math
from statistics import median
from typing import Any

import numpy as np
import torch
from methods.references import Step, entropy, js, kl, mean, reference, sharded

from smopd.objective.tokens import Moment
from smopd.seeds import rng


@reference("maigo")
def maigo(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        middle = [r for r in replies if r.middle]
        loss = torch.zeros((), dtype=torch.float64)
        for r in replies:
            if r.reply.view == "full":
                loss = loss + kl(r.log_s, r.log_t(r.task)).clamp_max(s.clip).mean()
            elif not r.middle:
                context = [*r.users, *r.task]
                loss = loss + kl(r.log_s, r.log_t(context)).clamp_max(s.clip).mean()
        if middle:
            drawn = rng(*moment.draw, "turn", *middle[0].reply.draw).randrange(len(middle))
            gaps = [(r.of(r.log_s) - r.of(r.log_t(r.users))).mean().item() for r in middle[: drawn + 1]]
            floored = [max(gap, s.eps) for gap in gaps]
            weight = median(floored) / (median(floored) + floored[-1])
            r = middle[drawn]
            loss = loss + weight * js(r.log_s, r.log_t(r.users)).clamp_max(s.clip).mean()
        losses.append(loss)
    return mean(losses)


@reference("reopold")
def reopold(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    floor = math.log(s.lam) / (1 - s.lam)
    every = [r for replies in step for r in sharded(replies)]
    log_s = [r.of(r.log_s) for r in every]
    reward = torch.cat([r.of(r.log_t(r.clean)) - a.detach() for r, a in zip(every, log_s, strict=True)])
    if moment.step <= s.phase * moment.steps:
        mask = reward >= floor
    else:
        entropies = torch.cat([entropy(r.log_s).detach() for r in every])
        mask = entropies >= np.quantile(entropies.numpy(), 1 - s.keep)
    return -(mask * reward.clamp_min(floor) * torch.cat(log_s)).sum() / mask.sum()

"""References of SMOPD's family: the paper's four, the controls, candidates of ours."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from methods.references import Step, entropy, js, kl, mean, reference
from methods.scene import Shown

from smopd.objective.tokens import Moment
from smopd.seeds import torch_generator

Costs = Callable[[torch.Tensor, float], torch.Tensor]


def hard(cost: torch.Tensor, c: float) -> torch.Tensor:
    """As in the paper."""
    return cost.clamp_max(c)


def by_entropy(log_s: torch.Tensor, cost: torch.Tensor) -> np.ndarray:
    """The paper's ranking."""
    return entropy(log_s).numpy()


def family(step: Step, s: Any, moment: Moment, cap: Costs = hard, rank: Any = by_entropy) -> torch.Tensor:
    """Middle turns, answer and FULL branch of SMOPD."""
    losses = []
    for replies in step:
        loss, middle, deltas = torch.zeros((), dtype=torch.float64), [], []
        for r in replies:
            if not r.middle:
                loss = loss + cap(kl(r.log_s, r.log_t(r.task)), s.clip).mean()
                continue
            log_t = r.log_t(r.users)
            cost = js(r.log_s, log_t)
            kept = np.ones(len(cost), dtype=bool)
            if moment.step > s.mask_after * moment.steps:
                score = rank(r.log_s.detach(), cost.detach()) if rank else drawn(r, moment)
                kept = score >= np.quantile(score, 1 - s.keep)
            count = len(cost) if s.denominator == "all" else kept.sum()
            middle.append(cap(cost, s.clip)[torch.tensor(kept)].sum() / count)
            deltas.append(max((r.of(r.log_s) - r.of(log_t)).abs().mean().item(), s.eps))
        outcome = 1 + s.eta * (-1 if replies[0].rollout.verdict.correct else 1)
        reliable = [np.median(deltas) / (np.median(deltas) + delta) for delta in deltas]
        weights = [min(max(weight * outcome, 0), 1) for weight in reliable]
        loss = loss + mean([w * part for w, part in zip(weights, middle, strict=True)])
        losses.append(loss)
    return mean(losses)


def drawn(r: Shown, moment: Moment) -> np.ndarray:
    """A number a token, from the seed that the step and the reply give."""
    generator = torch_generator(*moment.draw, "mask", *r.reply.draw)
    return torch.rand(len(r.reply.tokens), generator=generator, dtype=torch.float64).numpy()


for name in ("baseline", "entropy", "outcome", "combined", "fixed-denominator"):
    reference(name)(family)


@reference("random-mask")
def random_mask(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    return family(step, s, moment, rank=None)


@reference("divergence-mask")
def divergence_mask(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    return family(step, s, moment, rank=lambda log_s, cost: cost.numpy())


@reference("inverted-mask")
def inverted_mask(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    return family(step, s, moment, rank=lambda log_s, cost: -entropy(log_s).numpy())


@reference("clip-scale")
def clip_scale(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    return family(step, s, moment, lambda cost, c: cost * (c / cost.detach()).clamp_max(1))


@reference("soft-cap", "objective.clip=inf")
def soft_cap(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    return family(step, s, moment, lambda cost, c: cost if c == np.inf else c * (1 + cost / c).log())


@reference("relative-cap", "objective.clip_times=1.2")
def relative_cap(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    def cap(cost: torch.Tensor, clip: float) -> torch.Tensor:
        return cost.clamp_max(s.clip_times * np.median(cost.detach().numpy()))

    return family(step, s, moment, cap)


@reference("balanced")  # its loss; that its gradient is balanced is tested in tests/training/test_balance.py
def balanced(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    return family(step, s, moment, lambda cost, c: cost)


@reference("soft-or", "objective.keep=0.5")
def soft_or(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    def rank(log_s: torch.Tensor, cost: torch.Tensor) -> np.ndarray:
        columns = (entropy(log_s).numpy(), cost.numpy())
        h, d = ((x - x.min()) / ((x.max() - x.min()) or 1) for x in columns)
        return h + d - h * d

    return family(step, s, moment, rank=rank)

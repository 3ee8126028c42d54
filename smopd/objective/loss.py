"""One scalar from the replies of one rollout: every term's weighted, capped mean, added up. It sees vectors
of per-token statistics only, wherever they come from; which tokens count was decided before (`decide`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from smopd.lazy import torch
from smopd.objective.caps import hard, scale
from smopd.objective.contexts import whole_task
from smopd.objective.plan import Term
from smopd.objective.replies import every
from smopd.objective.tokens import Interpolation, Moment, Tokens, keep_mask, weights_of
from smopd.objective.turns import Turns, reliability_weight, uniform
from smopd.plugins import Unexpected
from smopd.rollout.play import Group, Reply, Rollout, group_of
from smopd.scoring.losses import reverse_kl
from smopd.scoring.stats import Decision, TokenStats, checked_vector


def decide(term: Term, replies: Sequence[Tokens]) -> list[Decision]:
    """Which tokens carry the term's loss, and with which weight: the one place where that is decided. Called
    with one reply, or with all of the step's where the term looks at more than one.
    """
    with term.calling("tokens"):
        weights = weights_of(term.tokens, replies)
    with term.calling("cap"):
        moving = (checked_vector(term.cap.has_gradient(t.divergence), len(t.divergence)) for t in replies)
        return [Decision(w, (w != 0) & moves) for w, moves in zip(weights, moving, strict=True)]


@dataclass(frozen=True)
class TermLoss:
    """One term of one rollout, with what the metrics want to know (all but `value` detached)."""

    value: torch.Tensor
    replies: tuple[Reply, ...] = ()  # those with tokens
    stats: tuple[TokenStats, ...] = ()
    over: tuple[torch.Tensor, ...] = ()  # for each reply, which tokens cost more than the cap
    turn_weights: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    deltas: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def scored(self) -> list[tuple[Reply, TokenStats]]:
        return list(zip(self.replies, self.stats, strict=True))

    def kept(self) -> list[torch.Tensor]:
        """For each reply, which tokens carry loss."""
        return [torch.ones_like(s.entropy) != 0 if s.weight is None else s.weight != 0 for s in self.stats]


@dataclass(frozen=True)
class RolloutLoss:
    """The loss of one rollout: the sum of its terms. `scored` holds each scored reply once."""

    total: torch.Tensor
    terms: Mapping[str, TermLoss]
    scored: tuple[tuple[Reply, TokenStats], ...] = ()


def term_loss(
    term: Term, replies: Sequence[Reply], stats: Sequence[TokenStats], correct: bool,
    zero: torch.Tensor, pool_share: float | None = None,
) -> TermLoss:  # fmt: skip
    """The term's loss of one rollout; `pool_share`: what its sum is times, if divided once for a pool."""
    if not stats:
        return TermLoss(zero)
    turns = Turns(replies, stats, correct)
    with term.calling("turns"):
        weights = checked_vector(term.turns(turns), len(stats)).to(stats[0].divergence)
    sums = []
    for turn_weight, reply in zip(weights, stats, strict=True):
        carried = turn_weight * _sum_kept_costs(term, reply)
        sums.append(carried / _divisor(term, reply.weight) if pool_share is None else carried)
    total = torch.stack(sums).mean() if pool_share is None else torch.stack(sums).sum() * pool_share
    with term.calling("cap"):
        over = tuple(checked_vector(term.cap.over(s.divergence.detach()), len(s.divergence)) for s in stats)
    return TermLoss(total * term.scale, tuple(replies), tuple(stats), over, weights, turns.deltas)


def _sum_kept_costs(term: Term, reply: TokenStats) -> torch.Tensor:
    """The weighted sum of what counts of the kept tokens' costs."""
    assert reply.weight is not None, "decide comes before the loss"
    with term.calling("cap"):
        counted = checked_vector(term.cap.apply(reply.divergence), len(reply.weight), of_floats=True)
        if reply.divergence.requires_grad and not counted.requires_grad:
            raise Unexpected("returned numbers without a gradient: make them of the costs by torch")
    kept = reply.weight != 0
    if kept.is_cpu:
        return (counted[kept] * reply.weight[kept]).sum()
    # To pick the kept ones, the host would have to wait for their number.
    return torch.where(kept, counted * reply.weight, 0.0).sum()


def _divisor(term: Term, weight: torch.Tensor | None) -> torch.Tensor | float:
    """What a sum over tokens is divided by; 1 where nothing is kept. On a GPU it stays there."""
    assert weight is not None, "decide comes before the loss"
    if term.mean_over == "sum":
        return 1
    if term.mean_over == "all":
        return len(weight) or 1
    total = weight.sum() if term.mean_over == "weight" else (weight != 0).sum()
    return (total.item() or 1) if total.is_cpu else torch.where(total == 0, 1, total)


Pool = Group | None  # whose tokens are divided once: a group's, or (None) those of the whole step


def pool_of(term: Term, played: Reply | Rollout) -> Pool:
    """The pool that something belongs to in a term that is not divided reply by reply."""
    return group_of(played) if term.per == "group" else None


@dataclass(frozen=True)
class StepStatistics:
    """What a first look at the whole step decided."""

    weights: Mapping[tuple[str, int, str, int, str], torch.Tensor]  # by `key_of` a reply, and term
    divisors: Mapping[tuple[str, Pool], float]  # by term and pool; one that is missing is 1


def step_statistics(terms: Sequence[Term], scored: Sequence[RolloutLoss], moment: Moment) -> StepStatistics:
    """Decide for the terms that look at more than one reply, from statistics of the whole step."""
    weights: dict[tuple[str, int, str, int, str], torch.Tensor] = {}
    divisors: dict[tuple[str, Pool], float] = {}
    for term in terms:
        pairs = [pair for loss in scored for pair in loss.terms[term.name].scored()]
        decisions = decide(term, [Tokens(stats, reply, moment) for reply, stats in pairs])
        pools: dict[Pool, list[torch.Tensor]] = defaultdict(list)
        for (reply, _), decision in zip(pairs, decisions, strict=True):
            weights[*key_of(reply), term.name] = decision.weight
            pools[pool_of(term, reply)].append(decision.weight.double())
        for pool, counted in pools.items() if term.per != "reply" else ():
            divisors[term.name, pool] = float(_divisor(term, torch.cat(counted)))
    return StepStatistics(weights, divisors)


def key_of(reply: Reply) -> tuple[str, int, str, int]:
    """Tells a reply from all others of a step."""
    return reply.example.id, reply.sample, reply.view, reply.turn


def rollout_loss(
    middle: Sequence[TokenStats], answer: TokenStats | None, full: TokenStats | None = None, *,
    correct: bool = False, keep: float = 1.0, eta: float = 0.0, clip: float = 0.5, eps: float = 1e-6,
    interpolation: Interpolation = "linear", noise: Sequence[torch.Tensor] | None = None,
    ranking: Literal["entropy", "random", "divergence", "inverted"] = "entropy",
    denominator: Literal["kept", "all"] = "kept", clip_mode: Literal["hard", "scale"] = "hard",
    importance: Sequence[torch.Tensor] | None = None,
) -> RolloutLoss:  # fmt: skip
    """The paper's loss, for loops that are not ours: L_mid + L_answer (+ L_full where that branch was drawn),
    as three terms. Replies without tokens are not eligible and add nothing.

    `keep` is the ratio in force at this step: 1 while the mask is off, which keeps the highest of a
    `ranking`; for a random one `noise` holds a vector for each middle reply. `importance` holds a detached
    factor for every token, a vector for each of the middle replies, the answer and the FULL reply that are
    given, in this order.
    """
    if noise is not None and len(noise) != len(middle):
        raise ValueError(f"noise must hold a vector for each of {len(middle)} middle replies: {len(noise)}")
    if ranking == "random" and noise is None:
        raise ValueError("a random mask needs `noise`, a number for every token of each middle reply")
    parts = [*(("middle", stats) for stats in middle), ("answer", answer), ("full", full)]
    scored = [(name, stats) for name, stats in parts if stats is not None]
    factors = importance or [torch.ones_like(stats.entropy) for _, stats in scored]
    weighed: dict[str, list[TokenStats]] = {"middle": [], "answer": [], "full": []}
    for number, ((name, stats), factor) in enumerate(zip(scored, factors, strict=True)):
        weight = factor
        if name == "middle":
            ranks = {"entropy": stats.entropy, "inverted": -stats.entropy, "divergence": stats.divergence}
            rank = noise[number] if noise is not None and ranking == "random" else ranks[ranking]
            weight = keep_mask(rank, keep, interpolation).to(factor) * factor
        weighed[name].append(replace(stats, weight=weight))
    # Without a token too the loss is where the statistics are.
    zero = (scored[0][1].divergence if scored else torch.zeros(0)).new_zeros(())
    cap = hard(clip) if clip_mode == "hard" else scale(clip)
    terms = {}
    for name, of_term in weighed.items():
        turns = reliability_weight(eta, eps) if name == "middle" else uniform
        term = Term(name, every, whole_task, reverse_kl(), cap=cap, turns=turns, mean_over=denominator)
        terms[name] = term_loss(term, (), [s for s in of_term if len(s.divergence)], correct, zero)
    return RolloutLoss(sum((loss.value for loss in terms.values()), start=zero), terms)

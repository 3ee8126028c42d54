"""Token weights: what each token of a reply counts in the loss. All of it is detached.

A token weight is a function of `Tokens`, what is known of a reply's tokens, that returns a number for each; 0
means that the token carries no loss. `batch(weight)` shows it the tokens of all the step's replies at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor
from typing import Any, Literal, TypeVar, get_args

from smopd.lazy import torch
from smopd.plugins import calling, check_function, check_word, is_number, require, unexpected
from smopd.rollout.play import Draw, Reply
from smopd.scoring.stats import TokenStats, checked_vector
from smopd.seeds import torch_generator


@dataclass(frozen=True)
class Moment:
    """Where in a run a step is; `draw` is what its random choices derive from."""

    step: int  # from 1
    steps: int
    draw: Draw = ()

    @property
    def done(self) -> float:
        """The share of the run that is over with this step."""
        return self.step / self.steps

    def after(self, share: float) -> bool:
        return self.step > share * self.steps


class Tokens:
    """What is known of the tokens of one reply: vectors [n], without gradient."""

    def __init__(self, stats: TokenStats, reply: Reply, moment: Moment) -> None:
        self.reply, self.moment = reply, moment
        self.divergence = stats.divergence.detach()  # what the term's row loss says of each token
        self.entropy, self.teacher_entropy = stats.entropy, stats.teacher_entropy
        self.student_logp, self.teacher_logp = stats.student_logp, stats.teacher_logp  # of the sampled token
        self.teacher_top = stats.teacher_top  # log-probability of the teacher's likeliest token
        self.auxiliary = stats.auxiliary  # [n, K] of the sampled token under the term's auxiliary contexts

    @property
    def log_ratio(self) -> torch.Tensor:
        """log t(y) - log s(y): the reward of on-policy distillation."""
        return self.teacher_logp - self.student_logp

    @property
    def position(self) -> torch.Tensor:
        """Place in the reply, from 0."""
        return torch.arange(len(self.entropy), device=self.entropy.device)

    @property
    def length(self) -> torch.Tensor:
        return torch.full_like(self.entropy, len(self.entropy))

    @property
    def advantage(self) -> torch.Tensor:
        """Of the rollout, as the plan's grade gave it."""
        return torch.full_like(self.entropy, self.reply.advantage)

    @property
    def engine_logp(self) -> torch.Tensor:
        """The log-probability when sampled; the training pass's own where the engine said nothing."""
        sampled = self.reply.engine_logps
        return self.student_logp.new_tensor(sampled) if sampled else self.student_logp

    @cached_property
    def noise(self) -> torch.Tensor:
        """A uniform number a token, the same however the work is cut and wherever it is done."""
        generator = torch_generator(*self.moment.draw, "mask", *self.reply.draw)
        return torch.rand(len(self.entropy), generator=generator, dtype=torch.float64).to(self.entropy.device)


class JoinedTokens:
    """The tokens of several replies, one after the other, under the names of `Tokens`."""

    def __init__(self, parts: Sequence[Tokens]) -> None:
        self.parts, self.moment = parts, parts[0].moment

    def __getattr__(self, name: str) -> Any:
        return torch.cat([getattr(part, name) for part in self.parts])


F = TypeVar("F", bound=Callable[..., Any])
Ranking = Callable[[Any], "torch.Tensor"]  # Tokens -> [n]; the highest are kept
Scope = Literal["reply", "batch"]
Interpolation = Literal["linear", "lower", "higher", "midpoint", "nearest"]


@dataclass(frozen=True)
class Weight:
    """A token weight with what is known of it. A plain function of `Tokens` will do where nothing else is."""

    text: str  # as it would be written
    over: Callable[[Sequence[Tokens]], list[torch.Tensor]]  # replies -> the weights of each
    scope: Scope = "reply"  # looks at one reply, or at all of the step's
    selects: bool = True  # whether it may drop tokens
    logged: Callable[[Moment], dict[str, float]] = lambda moment: {}  # what it wants to see in the metrics
    function: Any = None  # the one that it was made of, to be named where it fails

    def __post_init__(self) -> None:
        require(isinstance(self.text, str), "the text of a Weight", self.text, "a text")
        check_function(f"the function of the Weight {self.text}", self.over, "replies")
        check_word(f"the scope of the Weight {self.text}", self.scope, get_args(Scope))

    def __str__(self) -> str:
        return self.text


TokenWeight = Weight | Callable[[Any], "torch.Tensor"]


def as_weight(weight: TokenWeight) -> Weight:
    if isinstance(weight, Weight):
        return weight
    fine = callable(weight) and not isinstance(weight, type)
    require(fine, "a token weight", weight, "a function of (tokens)")
    name = getattr(weight, "__name__", "function")
    return Weight(name, lambda replies: [weight(reply) for reply in replies], function=weight)


gate = as_weight  # 1 where a condition on the tokens holds, 0 elsewhere


def weights_of(weight: TokenWeight, replies: Sequence[Tokens]) -> list[torch.Tensor]:
    """The weights of each of the replies, in the type of their statistics."""
    known = as_weight(weight)
    with calling(known.function, lambda: f"`{known.text}`"):
        weights = known.over(replies)
        if not isinstance(weights, (list, tuple)) or len(weights) != len(replies):
            raise unexpected(weights, f"a list of tensors, one for each of {len(replies)} replies")
        pairs = zip(weights, replies, strict=True)
        return [checked_vector(w, len(reply.entropy)).to(reply.entropy) for w, reply in pairs]


every_token = Weight("every_token", lambda parts: [torch.ones_like(t.entropy) for t in parts], selects=False)


def set_name(function: F, name: str) -> F:
    """The same under the name that a plan shows and that it is imported by."""
    function.__name__ = function.__qualname__ = name
    return function


entropy = set_name(lambda tokens: tokens.entropy, "entropy")
inverted_entropy = set_name(lambda tokens: -tokens.entropy, "inverted_entropy")
divergence = set_name(lambda tokens: tokens.divergence, "divergence")
at_random = set_name(lambda tokens: tokens.noise, "at_random")
log_ratio = set_name(lambda tokens: tokens.log_ratio, "log_ratio")
advantage = set_name(lambda tokens: tokens.advantage, "advantage")


def soft_or(clip: float = 0.0) -> Ranking:
    """h + d - h*d of entropy and divergence, each scaled to [0, 1] over the tokens at hand: high where either
    is. `clip`: that share of the highest entropies count as the value they begin at.
    """

    def ranking(tokens: Tokens) -> torch.Tensor:
        h, d = tokens.entropy, tokens.divergence
        if clip and len(h):
            h = h.clamp_max(torch.quantile(h, 1 - clip))
        h, d = _min_max(h), _min_max(d)
        return h + d - h * d

    return set_name(ranking, f"soft_or({clip:g})" if clip else "soft_or")


def _min_max(values: torch.Tensor) -> torch.Tensor:
    """Scaled to [0, 1]; all 0 where none differs."""
    if not len(values):
        return torch.zeros_like(values)
    low, high = values.min(), values.max()
    return torch.where(low == high, 0.0, (values - low) / (high - low))


def keep_mask(
    entropy: torch.Tensor, keep: float = 0.8, interpolation: Interpolation = "linear"
) -> torch.Tensor:
    """True for the tokens whose entropy reaches the reply's (1 - keep) quantile; ties are kept."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be in (0, 1], found {keep}")
    if keep == 1 or entropy.numel() == 0:
        return torch.ones_like(entropy, dtype=torch.bool)
    ordered = entropy.detach().sort().values
    rank = (1 - keep) * (ordered.numel() - 1)
    # 1 - 0.7 is a little more than 0.3: without this a token right at the threshold would fall below it
    rank = round(rank) if abs(rank - round(rank)) < 1e-9 else rank
    below, above = ordered[floor(rank)], ordered[ceil(rank)]
    threshold = {
        "linear": torch.minimum(below + (rank - floor(rank)) * (above - below), above),
        "lower": below, "higher": above, "midpoint": (below + above) / 2, "nearest": ordered[round(rank)],
    }[interpolation]  # fmt: skip
    return entropy.detach() >= threshold


def top(ranking: Ranking, keep: float, interpolation: Interpolation = "linear") -> Weight:
    """1 for the tokens at or above the (1 - keep) quantile of a ranking, 0 for the others."""
    check_function("the ranking of top(ranking, keep)", ranking, "tokens")
    fine = is_number(keep) and 0 < keep <= 1
    require(fine, "keep in top(ranking, keep)", keep, "a number over 0 and at most 1")
    check_word("the interpolation of top(ranking, keep)", interpolation, get_args(Interpolation))

    def over(replies: Sequence[Tokens]) -> list[torch.Tensor]:
        ranks = [checked_vector(ranking(reply), len(reply.entropy)) for reply in replies]
        return [keep_mask(rank, keep, interpolation) for rank in ranks]

    text = f"top({getattr(ranking, '__name__', 'ranking')}, {keep:g})"
    return Weight(text, over, logged=lambda moment: {"keep": keep}, function=ranking)


def up_to_position(count: int) -> Weight:
    """1 for the first `count` tokens of a reply, 0 for the rest."""
    return replace(as_weight(lambda tokens: tokens.position < count), text=f"up_to_position({count})")


def importance(cap: float) -> Weight:
    """Training over sampling probability, at most `cap`: the engine's draws stand for the student's."""

    def ratio(tokens: Tokens) -> torch.Tensor:
        ratio = (tokens.student_logp - tokens.engine_logp).exp().clamp_max(cap)
        # A token that hardly counts still counts as kept.
        return ratio.clamp_min(torch.finfo(ratio.dtype).tiny)

    return replace(as_weight(ratio), text=f"importance({cap:g})", selects=False)


def after(share: float, weight: TokenWeight, before: TokenWeight = every_token) -> Weight:
    """`before` for the first `share` of the run (default: every token counts once); then `weight` begins."""
    require(is_number(share), "share in after(share, weight)", share, "a number")
    later, early = as_weight(weight), as_weight(before)

    def over(replies: Sequence[Tokens]) -> list[torch.Tensor]:
        begun = bool(replies) and replies[0].moment.after(share)
        return weights_of(later if begun else early, replies)

    def logged(moment: Moment) -> dict[str, float]:
        values = later.logged(moment)
        return values if moment.after(share) else dict.fromkeys(values, 1.0) | early.logged(moment)

    text = f"after({share:g}, {later.text}{'' if early is every_token else f', before {early.text}'})"
    return Weight(text, over, _scope(later, early), later.selects or early.selects, logged)


def _scope(*weights: Weight) -> Scope:
    return "batch" if any(weight.scope == "batch" for weight in weights) else "reply"


def counted(weight: TokenWeight) -> Weight:
    """The same, but a token of weight exactly 0 is among the kept: its reward is 0, not absent."""
    inner = as_weight(weight)

    def over(replies: Sequence[Tokens]) -> list[torch.Tensor]:
        tiny = torch.finfo(replies[0].entropy.dtype).tiny if replies else 0.0
        return [torch.where(w == 0, tiny, w) for w in weights_of(inner, replies)]

    return replace(inner, text=f"counted({inner.text})", over=over, selects=False)


def product(*weights: TokenWeight) -> Weight:
    """The product of several weights, each in its own scope."""
    parts = [as_weight(weight) for weight in weights]

    def over(replies: Sequence[Tokens]) -> list[torch.Tensor]:
        factors = [weights_of(part, replies) for part in parts]
        return [torch.stack(of_reply).prod(0) for of_reply in zip(*factors, strict=True)]

    def logged(moment: Moment) -> dict[str, float]:
        return {name: value for part in parts for name, value in part.logged(moment).items()}

    text = f"product({', '.join(part.text for part in parts)})"
    return Weight(text, over, _scope(*parts), any(part.selects for part in parts), logged)


def batch(weight: TokenWeight) -> Weight:
    """Ranks, scales or counts over the tokens of the whole step instead of one reply."""
    inner = as_weight(weight)

    def over(replies: Sequence[Tokens]) -> list[torch.Tensor]:
        if not replies:
            return []
        joined: Any = JoinedTokens(replies)
        lengths = [len(r.entropy) for r in replies]
        return list(checked_vector(inner.over([joined])[0], sum(lengths)).split(lengths))

    return replace(inner, text=f"batch({inner.text})", over=over, scope="batch")


def clipped_ratio(advantage: Ranking, clip: float) -> Weight:
    """The policy gradient of PPO: advantage times training over sampling probability, 0 where the ratio has
    left [1 - clip, 1 + clip] in the advantage's direction.
    """

    def weight(tokens: Tokens) -> torch.Tensor:
        ratio, gain = (tokens.student_logp - tokens.engine_logp).exp(), advantage(tokens)
        left = torch.where(gain > 0, ratio > 1 + clip, ratio < 1 - clip)
        return torch.where(left, 0.0, ratio * gain)

    return replace(as_weight(weight), text=f"clipped_ratio({clip:g})", function=advantage)


def agreement(gain: float, quantile: float = 0.95, most: float = 10.0, floor: float = 0.01) -> Weight:
    """1 / (1 + gain * min(variance / its quantile, most)), at least floor, over the auxiliary contexts."""

    def weight(tokens: Tokens) -> torch.Tensor:
        assert tokens.auxiliary is not None, "agreement needs a term with auxiliary contexts"
        variance = tokens.auxiliary.var(-1)
        usual = torch.quantile(variance, quantile).clamp_min(1e-6)
        return (1 / (1 + gain * (variance / usual).clamp_max(most))).clamp_min(floor)

    return replace(as_weight(weight), text=f"agreement({gain:g})", selects=False)

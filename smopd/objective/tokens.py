"""Token weights: what each token of a reply counts in the loss. All of it is detached.

A token weight is a function of `Tokens`, what is known of a reply's tokens, that returns a number for each; 0
means that the token carries no loss and costs no gradient. `batch(weight)` shows it the tokens of all the
step's replies at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch

from smopd.objective.selection import Interpolation, keep_mask
from smopd.rollout.play import Draw, Reply
from smopd.scoring.stats import TokenStats
from smopd.seeds import torch_generator


@dataclass(frozen=True)
class Moment:
    """Where in a run a step is; `draw` is what its random choices derive from."""

    step: int  # from 1
    steps: int
    draw: Draw = ()

    def after(self, share: float) -> bool:
        """Whether the first `share` of the run is over."""
        return self.step > share * self.steps


class Tokens:
    """What is known of the tokens of one reply: vectors [n], without gradient."""

    def __init__(self, stats: TokenStats, reply: Reply, moment: Moment) -> None:
        self.reply, self.moment = reply, moment
        self.divergence = stats.divergence.detach()  # what the term's row loss says of each token
        self.entropy, self.teacher_entropy = stats.entropy, stats.teacher_entropy
        self.student_logp, self.teacher_logp = stats.student_logp, stats.teacher_logp  # of the sampled token

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
        """Tokens of the reply."""
        return torch.full_like(self.entropy, len(self.entropy))

    @property
    def advantage(self) -> torch.Tensor:
        """Of the rollout, as the plan's grade gave it."""
        return torch.full_like(self.entropy, self.reply.advantage)

    @property
    def engine_logp(self) -> torch.Tensor:
        """The log-probability when sampled; the training pass's own where the engine said nothing."""
        given = self.reply.engine_logps
        return self.student_logp.new_tensor(given) if given else self.student_logp

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


TokenWeight = Callable[[Any], torch.Tensor]  # Tokens -> [n]
Ranking = Callable[[Any], torch.Tensor]  # Tokens -> [n]; the highest are kept


def scope(weight: TokenWeight) -> Literal["reply", "batch"]:
    """Whether a weight looks at one reply or at the whole step."""
    return getattr(weight, "scope", "reply")


def logged(weight: TokenWeight, moment: Moment) -> dict[str, float]:
    """What a weight wants to see in the metrics."""
    return weight.logged(moment) if hasattr(weight, "logged") else {}


def weights_of(weight: TokenWeight, replies: Sequence[Tokens]) -> list[torch.Tensor]:
    """The weights of each of the replies, in the type of their statistics."""
    found = weight.over(replies) if hasattr(weight, "over") else [weight(reply) for reply in replies]
    return [w.to(reply.entropy) for w, reply in zip(found, replies, strict=True)]


def every_token(tokens: Tokens) -> torch.Tensor:
    """Each counts once."""
    return torch.ones_like(tokens.entropy)


# Rankings: by what tokens are kept.


def entropy(tokens: Tokens) -> torch.Tensor:
    """Where the student is least certain."""
    return tokens.entropy


def inverted_entropy(tokens: Tokens) -> torch.Tensor:
    """Where the student is most certain."""
    return -tokens.entropy


def divergence(tokens: Tokens) -> torch.Tensor:
    """Where the term's row loss is highest."""
    return tokens.divergence


def at_random(tokens: Tokens) -> torch.Tensor:
    """By a drawn number."""
    return tokens.noise


@dataclass(frozen=True)
class Top:
    """1 for the tokens at or above the (1 - keep) quantile of a ranking, 0 for the others."""

    ranking: Ranking
    keep: float
    interpolation: Interpolation = "linear"

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        return keep_mask(self.ranking(tokens), self.keep, self.interpolation)

    def logged(self, moment: Moment) -> dict[str, float]:
        """The share in force."""
        return {"keep": self.keep}


def top(ranking: Ranking, keep: float, interpolation: Interpolation = "linear") -> Top:
    """Keeps the highest share of a ranking."""
    return Top(ranking, keep, interpolation)


@dataclass(frozen=True)
class After:
    """A weight that begins when the first `share` of the run is over; until then every token counts once."""

    share: float
    inner: TokenWeight

    @property
    def scope(self) -> Literal["reply", "batch"]:
        """The inner one's."""
        return scope(self.inner)

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        return self.over([tokens])[0]

    def over(self, replies: Sequence[Tokens]) -> list[torch.Tensor]:
        """The weights of several replies."""
        begun = bool(replies) and replies[0].moment.after(self.share)
        return weights_of(self.inner if begun else every_token, replies)

    def logged(self, moment: Moment) -> dict[str, float]:
        """The inner one's, 1 before it begins."""
        values = logged(self.inner, moment)
        return values if moment.after(self.share) else dict.fromkeys(values, 1.0)


def after(share: float, weight: TokenWeight) -> After:
    """Every token counts once for the first `share` of the run."""
    return After(share, weight)


@dataclass(frozen=True)
class Gate:
    """1 where a condition on the tokens holds, 0 elsewhere."""

    condition: Callable[[Any], torch.Tensor]

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        return self.condition(tokens)


def gate(condition: Callable[[Any], torch.Tensor]) -> Gate:
    """Keeps the tokens for which a condition holds."""
    return Gate(condition)


@dataclass(frozen=True)
class Importance:
    """The truncated ratio of training to sampling probability: draws of the engine stand for draws of the
    student.
    """

    cap: float
    selects: ClassVar[bool] = False  # it weighs every token and drops none

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        ratio = (tokens.student_logp - tokens.engine_logp).exp().clamp_max(self.cap)
        return ratio.clamp_min(
            torch.finfo(ratio.dtype).tiny
        )  # a token that hardly counts still counts as kept


def importance(cap: float) -> Importance:
    """Truncated importance weights, at most `cap`."""
    return Importance(cap)


@dataclass(frozen=True)
class Product:
    """The product of several weights, each in its own scope."""

    parts: tuple[TokenWeight, ...]

    @property
    def scope(self) -> Literal["reply", "batch"]:
        """The widest of them."""
        return "batch" if any(scope(part) == "batch" for part in self.parts) else "reply"

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        return self.over([tokens])[0]

    def over(self, replies: Sequence[Tokens]) -> list[torch.Tensor]:
        """The weights of several replies."""
        factors = [weights_of(part, replies) for part in self.parts]
        return [torch.stack(of_reply).prod(0) for of_reply in zip(*factors, strict=True)]

    def logged(self, moment: Moment) -> dict[str, float]:
        """All of theirs."""
        return {name: value for part in self.parts for name, value in logged(part, moment).items()}


def product(*parts: TokenWeight) -> TokenWeight:
    """The product of several weights."""
    return parts[0] if len(parts) == 1 else Product(parts)


@dataclass(frozen=True)
class Batch:
    """A weight that sees the tokens of all the step's replies at once."""

    inner: TokenWeight
    scope: Literal["batch"] = "batch"

    def __call__(self, tokens: Tokens) -> torch.Tensor:
        return self.over([tokens])[0]

    def over(self, replies: Sequence[Tokens]) -> list[torch.Tensor]:
        """The weights of several replies, from all their tokens together."""
        lengths = [len(reply.entropy) for reply in replies]
        return list(self.inner(JoinedTokens(replies)).split(lengths)) if replies else []

    def logged(self, moment: Moment) -> dict[str, float]:
        """The inner one's."""
        return logged(self.inner, moment)


def batch(weight: TokenWeight) -> Batch:
    """Ranks, scales or counts over the whole step instead of one reply."""
    return Batch(weight)

"""Row losses: what one token costs, from the student's and the teacher's logits and the sampled token.

A row loss has a `name` and a function `value(rows)` of one chunk of logits; autograd gives its gradient,
where the kernel (kernel.py) knows no closed form. Natural logarithm; shapes: n rows of a chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Any, Literal, NamedTuple, Protocol

from smopd.lazy import torch
from smopd.plugins import Unexpected, calling
from smopd.scoring.stats import checked_vector

Kind = Literal["gjs", "rkl", "fkl"]
VOCABULARY = 4096  # of the rows that a loss is tried on
# Student and teacher logits [n, V] -> [n].
LogitLoss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


class Rows(NamedTuple):
    """One chunk: logits in float32 (float64 for float64 inputs), soft-capped where the model does that."""

    student: torch.Tensor  # [n, V], differentiable
    teacher: torch.Tensor  # [n, V]
    tokens: torch.Tensor  # [n] the sampled tokens
    auxiliary: torch.Tensor | None = None  # [n, K] log-probabilities of tokens under further contexts


class RowLoss(Protocol):
    """What a token costs. Equal losses are computed once; the name is for messages."""

    @property
    def name(self) -> str: ...

    def __hash__(self) -> int: ...

    def value(self, rows: Rows) -> torch.Tensor:
        """[n], each row from its own logits alone."""


@dataclass(frozen=True)
class Divergence:
    """gjs: m = b*t + (1-b)*s, b*KL(t||m) + (1-b)*KL(s||m); rkl: KL(s||t); fkl: KL(t||s).

    `temperature` softens both distributions; `entry_cap` caps each vocabulary entry's part before the sum,
    and with `both_ways` negative parts too.
    """

    kind: Kind
    beta: float = 0.5
    temperature: float = 1.0
    entry_cap: float | None = None
    both_ways: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("gjs", "rkl", "fkl"):
            known = "gjs, rkl, fkl, or a row loss of your own"
            raise ValueError(f"unknown divergence {self.kind!r}; known: {known}")
        if self.kind == "gjs" and not 0 < self.beta < 1:
            why = "at both ends it is zero; use rkl or fkl"
            raise ValueError(f"gjs needs 0 < beta < 1, found {self.beta}: {why}")

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return f"gjs({self.beta:g})" if self.kind == "gjs" else self.kind

    def value(self, rows: Rows) -> torch.Tensor:
        student, teacher = rows.student, rows.teacher
        if self.temperature != 1:
            student, teacher = student / self.temperature, teacher / self.temperature
        log_s, log_t = student.log_softmax(-1), teacher.log_softmax(-1)
        terms = divergence_terms(log_s, log_t, self.kind, self.beta)
        if self.entry_cap is not None:
            terms = terms.clamp(-self.entry_cap if self.both_ways else None, self.entry_cap)
        elif self.kind != "gjs":
            # Adds zero, but for what the two normalisers were rounded by, which a small KL would take in.
            terms = terms + (log_t.exp() - log_s.exp()) * (1 if self.kind == "rkl" else -1)
        return terms.sum(-1)


def gjs(beta: float = 0.5, temperature: float = 1.0, entry_cap: float | None = None) -> Divergence:
    """Generalised Jensen-Shannon in GKD's convention: forward KL at beta 0, reverse KL at 1."""
    kind: Kind = "fkl" if beta == 0 else "rkl" if beta == 1 else "gjs"
    return Divergence(kind, beta if kind == "gjs" else 0.5, temperature, entry_cap)


def reverse_kl(
    temperature: float = 1.0, entry_cap: float | None = None, both_ways: bool = False
) -> Divergence:
    """KL(student || teacher), the mode-seeking direction."""
    return Divergence("rkl", temperature=temperature, entry_cap=entry_cap, both_ways=both_ways)


def forward_kl(temperature: float = 1.0, entry_cap: float | None = None) -> Divergence:
    """KL(teacher || student), the mode-covering direction."""
    return Divergence("fkl", temperature=temperature, entry_cap=entry_cap)


@dataclass(frozen=True)
class FunctionLoss:
    """A row loss from a function of `Rows`; autograd inside the chunk gives its gradient."""

    name: str
    value: Callable[[Rows], torch.Tensor]

    def __str__(self) -> str:
        return self.name


def row_loss(function: Callable[[Rows], torch.Tensor]) -> FunctionLoss:
    """Decorator that makes a row loss of a function."""
    return FunctionLoss(getattr(function, "__name__", "function"), function)


@cache
def sampled_nll() -> FunctionLoss:
    """-log s(y) of the sampled token. With the advantage as its weight it is a policy gradient."""
    return FunctionLoss("nll", lambda rows: -_sampled_logp(rows.student, rows))


@cache
def sampled_kl() -> FunctionLoss:
    """t(y)/s(y) - log(t(y)/s(y)) - 1 of the sampled token: GRPO's estimate of KL(s||t), never negative."""

    def value(rows: Rows) -> torch.Tensor:
        log_s, log_t = (_sampled_logp(logits, rows) for logits in (rows.student, rows.teacher))
        return (log_t - log_s).expm1() - (log_t - log_s)

    return FunctionLoss("sampled kl", value)


@cache
def top_k_forward_kl(k: int, renormalise: bool = False) -> FunctionLoss:
    """KL(t||s) over the teacher's k likeliest entries; `renormalise`: t sums to 1 on them, s never does."""

    def value(rows: Rows) -> torch.Tensor:
        log_t, entries = rows.teacher.log_softmax(-1).topk(min(k, rows.teacher.shape[-1]))
        log_t = log_t.log_softmax(-1) if renormalise else log_t
        return _kl_terms(log_t, rows.student.log_softmax(-1).gather(-1, entries)).sum(-1)

    return FunctionLoss(f"fkl of top {k}", value)


@cache
def top_k_gjs(k: int, beta: float = 0.5) -> FunctionLoss:
    """GJS over the student's k likeliest entries and one more that stands for all the rest."""

    def value(rows: Rows) -> torch.Tensor:
        log_s, log_t = rows.student.log_softmax(-1), rows.teacher.log_softmax(-1)
        if k < log_s.shape[-1]:  # else there is no rest
            entries = log_s.detach().topk(k).indices
            log_s, log_t = _with_rest(log_s, entries), _with_rest(log_t, entries)
        return divergence_terms(log_s, log_t, "gjs", beta).sum(-1)

    return FunctionLoss(f"gjs({beta:g}) of the student's top {k} and the rest", value)


@cache
def hinge(margin: float) -> FunctionLoss:
    """max(0, margin + |log s - log t| - |log s - log t'|) of the sampled token; t': a term's auxiliary."""

    def value(rows: Rows) -> torch.Tensor:
        assert rows.auxiliary is not None, "a hinge needs a term with an auxiliary context"
        log_s, log_t = (_sampled_logp(logits, rows) for logits in (rows.student, rows.teacher))
        nearer, farther = ((log_s - log_p).abs() for log_p in (log_t, rows.auxiliary[:, 0]))
        return (margin + nearer - farther).clamp_min(0)

    return FunctionLoss(f"hinge({margin:g})", value)


@dataclass(frozen=True)
class HiddenLoss(FunctionLoss):
    """A row loss of rows that hold last hidden states [n, d] in the place of logits; it needs no product."""


@cache
def hidden_mse() -> HiddenLoss:
    """Mean squared difference of the last hidden states."""
    return HiddenLoss("hidden mse", lambda rows: (rows.student - rows.teacher).square().mean(-1))


@cache
def drkl(gamma: float = 0.5) -> FunctionLoss:
    """KL of [s(y), 1 - s(y)] against the same of t, plus gamma * KL(s||t) of both without y."""

    def value(rows: Rows) -> torch.Tensor:
        log_ps, sampled = [z.log_softmax(-1) for z in (rows.student, rows.teacher)], rows.tokens[:, None]
        pairs = [_with_rest(log_p, sampled) for log_p in log_ps]
        others = [log_p - pair[:, 1:] for log_p, pair in zip(log_ps, pairs, strict=True)]
        apart = _kl_terms(*others).scatter(-1, sampled, 0.0).sum(-1)
        return _kl_terms(*pairs).sum(-1) + gamma * apart

    return FunctionLoss(f"drkl({gamma:g})", value)


def row_values(loss: RowLoss, rows: Rows) -> torch.Tensor:
    """[n] what a row loss makes of some rows; anything else that it returns is refused."""
    with calling(loss.value, lambda: f"loss `{loss.name}`"):
        values = checked_vector(loss.value(rows), len(rows.student), of_floats=True)
        if rows.student.requires_grad and torch.is_grad_enabled() and not values.requires_grad:
            raise Unexpected("returned numbers without a gradient: make them of rows.student by torch")
        return values


@cache
def needs_teacher(loss: Any) -> bool:
    """Whether a row loss depends on the teacher: it is tried with two of them."""
    try:
        first, second = (row_values(loss, random_rows(seed, auxiliary=3)) for seed in (1, 2))
    except Exception:  # told when it is called in earnest
        return False
    return not torch.equal(first, second)


def random_rows(seed: int, count: int = 8, vocabulary: int = VOCABULARY, auxiliary: int = 0) -> Rows:
    """Rows to try a loss on. The seed changes the teacher alone."""
    same, other = (torch.Generator().manual_seed(number) for number in (0, seed))
    student, teacher = (torch.randn(count, vocabulary, generator=g) * 2 for g in (same, other))
    tokens = torch.randint(vocabulary, (count,), generator=same)
    further = torch.rand(count, auxiliary, generator=same).log() if auxiliary else None
    return Rows(student.requires_grad_(), teacher, tokens, further)


def _with_rest(log_p: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """[n, k + 1] log-probabilities of k entries of each row, and of all others together."""
    rest = log_p.scatter(-1, entries, float("-inf")).logsumexp(-1, True)
    return torch.cat([log_p.gather(-1, entries), rest], -1)


def _sampled_logp(logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    return logits.log_softmax(-1).gather(-1, rows.tokens[:, None])[:, 0]


def as_loss(kind: Kind | LogitLoss, beta: float, temperature: float, entry_cap: float | None) -> RowLoss:
    """The row loss of a kind by name, or of a function of two chunks of logits."""
    if isinstance(kind, str):
        return Divergence(kind, beta, temperature, entry_cap)
    return FunctionLoss("function", lambda rows: kind(rows.student / temperature, rows.teacher / temperature))


def divergence_terms(student: torch.Tensor, teacher: torch.Tensor, kind: Kind, beta: float) -> torch.Tensor:
    """[n, V] the contribution of every vocabulary entry, from two log-distributions."""
    if kind == "rkl":
        return _kl_terms(student, teacher)
    if kind == "fkl":
        return _kl_terms(teacher, student)
    # log m = log(b*t + (1-b)*s), added in log space so that tiny probabilities keep their ratio
    mixture = torch.logaddexp(teacher + log(beta), student + log(1 - beta))
    return beta * _kl_terms(teacher, mixture) + (1 - beta) * _kl_terms(student, mixture)


def _kl_terms(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """p*(log p - log q), zero where p is zero, from log-probabilities."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p))

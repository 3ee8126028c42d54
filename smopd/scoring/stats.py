"""What is known of every reply token once student and teacher have scored it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from smopd.lazy import torch
from smopd.plugins import Unexpected, unexpected


@dataclass(frozen=True)
class TokenStats:
    """One value a reply token. Only `divergence`, what a row loss makes of the token, carries gradient.

    `weight`: what it counts in the loss, 0 for a token that carries none; None where nobody decided.
    `teacher_top`: the log-probability of the teacher's likeliest token; `auxiliary` [n, K]: of the sampled
    token under further contexts of a term. `top_tokens` and `top_logps` [n, 2, k]: the likeliest of student
    and teacher, if asked for.
    """

    divergence: torch.Tensor
    entropy: torch.Tensor
    teacher_entropy: torch.Tensor
    student_logp: torch.Tensor
    teacher_logp: torch.Tensor
    weight: torch.Tensor | None = None
    teacher_top: torch.Tensor | None = None
    auxiliary: torch.Tensor | None = None
    top_tokens: torch.Tensor | None = None
    top_logps: torch.Tensor | None = None

    def split(self, lengths: Sequence[int]) -> list[TokenStats]:
        """Cut into consecutive pieces, one a reply."""
        columns = [getattr(self, field.name) for field in fields(self)]
        pieces = [[None] * len(lengths) if c is None else torch.split(c, list(lengths)) for c in columns]
        return [TokenStats(*piece) for piece in zip(*pieces, strict=True)]

    def detached(self) -> TokenStats:
        return replace(self, divergence=self.divergence.detach())


class Decision(NamedTuple):
    """Which tokens of a reply carry loss: their weights, and which rows can have a gradient."""

    weight: torch.Tensor  # [n]; 0 for a token without loss
    has_gradient: torch.Tensor  # [n] bool; False where the weight is 0 or a cap leaves no gradient


# Number of the reply, its statistics under each row loss (detached) -> a decision for each row loss.
Decide = Callable[[int, Sequence[TokenStats]], Sequence[Decision]]


def checked_vector(value: Any, count: int, of_floats: bool = False) -> torch.Tensor:
    """What a part returned, where it is a tensor of so many numbers: nothing is broadcast or converted."""
    expected = f"a tensor of {count} {'floats' if of_floats else 'numbers'}"
    if not isinstance(value, torch.Tensor) or value.shape != (count,) or value.is_complex():
        raise unexpected(value, expected)
    if of_floats and not value.is_floating_point():
        raise unexpected(value, expected)
    if not of_floats and value.requires_grad:
        raise Unexpected("returned numbers with a gradient, which nobody follows: return them .detach()ed")
    return value


def check_rows(student: torch.Tensor, teacher: torch.Tensor, tokens: torch.Tensor) -> None:
    counts = [len(student), len(teacher), len(tokens)]
    if len(set(counts)) > 1:
        raise ValueError(f"student, teacher and tokens must have one row a token: {str(counts)[1:-1]}")

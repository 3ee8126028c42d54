"""What is known of every reply token once student and teacher have scored it."""

from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["gjs", "rkl", "fkl"]


@dataclass(frozen=True)
class TokenStats:
    """One value a reply token. Only `divergence` carries gradient."""

    divergence: torch.Tensor
    entropy: torch.Tensor
    teacher_entropy: torch.Tensor
    student_logp: torch.Tensor
    teacher_logp: torch.Tensor

    def split(self, lengths: list[int]) -> list["TokenStats"]:
        """Cut into consecutive pieces, one a reply."""
        columns = [torch.split(getattr(self, name), lengths) for name in self.__dataclass_fields__]
        return [TokenStats(*pieces) for pieces in zip(*columns, strict=True)]


def check_arguments(
    student: torch.Tensor, teacher: torch.Tensor, tokens: torch.Tensor, kind: object, beta: float
) -> None:
    """Refuse rows that do not line up and divergences that do not exist."""
    if not (student.shape[0] == teacher.shape[0] == tokens.shape[0]):
        counts = f"{student.shape[0]}, {teacher.shape[0]}, {tokens.shape[0]}"
        raise ValueError(f"student, teacher and tokens must have one row a token: {counts}")
    if not callable(kind) and kind not in ("gjs", "rkl", "fkl"):
        raise ValueError(
            f"unknown divergence {kind!r}; known: gjs, rkl, fkl, or a function of two chunks of logits"
        )
    if kind == "gjs" and not 0 < beta < 1:
        raise ValueError(
            f"gjs needs 0 < beta < 1, found {beta}: at both ends it is identically zero; use rkl or fkl"
        )

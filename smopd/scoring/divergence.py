"""The per-token operation: how far the student's next-token distribution is from the teacher's, and the statistics around it.

Plain path: full logits, every intermediate in sight. Softmax in float32 whatever the inputs (float64 stays float64), natural
logarithm. Shapes: N reply tokens, d hidden width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

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


def token_divergence(
    student_hidden: torch.Tensor,
    teacher_hidden: torch.Tensor,
    lm_head_weight: torch.Tensor,
    tokens: torch.Tensor,
    kind: Kind = "gjs",
    beta: float = 0.5,
    temperature: float = 1.0,
    chunk_size: int | None = None,
    vocab_clip: float | None = None,
) -> TokenStats:
    """Divergence, entropies and log-probabilities of `tokens` [N] under hidden states [N, d] and a shared head [V, d].

    `temperature` softens the two distributions of the divergence; entropies and log-probabilities are at temperature 1.
    `vocab_clip` caps each vocabulary entry's contribution before the sum. `chunk_size` bounds the rows computed at once.
    """
    count = student_hidden.shape[0]
    if not (teacher_hidden.shape[0] == tokens.shape[0] == count):
        raise ValueError(
            f"student, teacher and tokens must have one row a token: {count}, {teacher_hidden.shape[0]}, {tokens.shape[0]}"
        )
    size = max(1, chunk_size or count)
    pieces = [
        _chunk(student_hidden[i : i + size], teacher_hidden[i : i + size], lm_head_weight, tokens[i : i + size],
               kind, beta, temperature, vocab_clip)
        for i in range(0, max(count, 1), size)
    ]  # fmt: skip
    return TokenStats(*(torch.cat([getattr(p, name) for p in pieces]) for name in TokenStats.__dataclass_fields__))


def _chunk(
    student_hidden: torch.Tensor,
    teacher_hidden: torch.Tensor,
    weight: torch.Tensor,
    tokens: torch.Tensor,
    kind: Kind,
    beta: float,
    temperature: float,
    vocab_clip: float | None,
) -> TokenStats:
    student_logits_NV = _wide(F.linear(student_hidden, weight))
    with torch.no_grad():
        teacher_logits_NV = _wide(F.linear(teacher_hidden, weight))
        teacher_NV = teacher_logits_NV.log_softmax(-1)
    student_NV = student_logits_NV.log_softmax(-1)
    soft_student_NV, soft_teacher_NV = student_NV, teacher_NV
    if temperature != 1.0:
        soft_student_NV = (student_logits_NV / temperature).log_softmax(-1)
        soft_teacher_NV = (teacher_logits_NV / temperature).log_softmax(-1)
    terms_NV = divergence_terms(soft_student_NV, soft_teacher_NV, kind, beta)
    if vocab_clip is not None:
        terms_NV = terms_NV.clamp_max(vocab_clip)
    student = student_NV.detach()
    return TokenStats(
        divergence=terms_NV.sum(-1),
        entropy=_entropy(student),
        teacher_entropy=_entropy(teacher_NV),
        student_logp=student.gather(-1, tokens[:, None])[:, 0],
        teacher_logp=teacher_NV.gather(-1, tokens[:, None])[:, 0],
    )


def divergence_terms(student_NV: torch.Tensor, teacher_NV: torch.Tensor, kind: Kind, beta: float) -> torch.Tensor:
    """The contribution of every vocabulary entry, from two log-distributions.

    gjs: m = b*t + (1-b)*s, b*KL(t||m) + (1-b)*KL(s||m); rkl: KL(s||t); fkl: KL(t||s).
    """
    if kind == "rkl":
        return _kl_terms(student_NV, teacher_NV)
    if kind == "fkl":
        return _kl_terms(teacher_NV, student_NV)
    if kind != "gjs":
        raise ValueError(f"unknown divergence {kind!r}; known: gjs, rkl, fkl")
    if not 0 < beta < 1:
        raise ValueError(f"gjs needs 0 < beta < 1, found {beta}: at both ends it is identically zero; use rkl or fkl")
    # log m = log(b*t + (1-b)*s), added in log space so that tiny probabilities keep their ratio
    mixture_NV = torch.logaddexp(
        teacher_NV + torch.log(torch.tensor(beta, dtype=teacher_NV.dtype)).item(),
        student_NV + torch.log(torch.tensor(1 - beta, dtype=student_NV.dtype)).item(),
    )
    return beta * _kl_terms(teacher_NV, mixture_NV) + (1 - beta) * _kl_terms(student_NV, mixture_NV)


def _kl_terms(p_NV: torch.Tensor, q_NV: torch.Tensor) -> torch.Tensor:
    """p*(log p - log q), zero where p is zero, from log-probabilities."""
    p = p_NV.exp()
    return torch.where(p > 0, p * (p_NV - q_NV), torch.zeros_like(p))


def _entropy(logp_NV: torch.Tensor) -> torch.Tensor:
    p = logp_NV.exp()
    return -torch.where(p > 0, p * logp_NV, torch.zeros_like(p)).sum(-1)


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()

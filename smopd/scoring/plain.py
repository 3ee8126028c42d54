"""The plain path: full logits and one padded row a turn, every intermediate in sight. Slow, and right: the
reference of the tests and of `smopd bench`, the fallback where the head is trained or a model's attention
can't be packed.

A model that soft-caps its logits (Gemma 2: z = cap * tanh(z / cap)) has a `CappedHead`, whose cap every
scoring function applies. Softmax in float32 whatever the inputs (float64 stays float64), natural logarithm.
Shapes: N reply tokens, d hidden width, V vocabulary.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from smopd.errors import UserError
from smopd.scoring.stats import Kind, TokenStats, check_arguments

Scored = tuple[Sequence[int], Sequence[int]]  # context ids, reply ids


class CappedHead(torch.Tensor):
    """The weight of a head whose logits are soft-capped. The cap goes where the weight goes, so that no
    caller can forget it.
    """

    softcap: float
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # what is computed from it is a plain tensor

    @staticmethod
    def of(weight: torch.Tensor, softcap: float) -> "CappedHead":
        """The same weight, not copied, with its cap."""
        if type(weight) not in (
            torch.Tensor,
            torch.nn.Parameter,
        ):  # a sharded weight would lose its cap when it is gathered
            raise UserError(
                f"a soft-capped head must be a plain tensor, not {type(weight).__name__}: train without train.shard"
            )
        head = torch.Tensor._make_subclass(CappedHead, weight.detach(), weight.requires_grad)
        head.softcap = softcap
        return head


def cap_of(weight: torch.Tensor) -> float | None:
    """The soft cap of a head's logits, None where it has none."""
    return weight.softcap if isinstance(weight, CappedHead) else None


def capped(logits: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """cap * tanh(logits / cap); the logits themselves without a cap."""
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


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
    lengths: object = None,
    needed: object = None,
) -> TokenStats:
    """Divergence, entropies and log-probabilities of `tokens` [N] under hidden states [N, d] and a shared
    head [V, d].

    `temperature` softens the two distributions of the divergence; entropies and log-probabilities are at
    temperature 1. `vocab_clip` caps each vocabulary entry's contribution before the sum. `chunk_size` bounds
    the rows computed at once. `lengths` and `needed` are the fast path's and change nothing here: every token
    gets its gradient.
    """
    check_arguments(student_hidden, teacher_hidden, tokens, kind, beta)
    count = student_hidden.shape[0]
    size = max(1, chunk_size or count)
    pieces = [
        _chunk(student_hidden[i : i + size], teacher_hidden[i : i + size], lm_head_weight, tokens[i : i + size],
               kind, beta, temperature, vocab_clip)
        for i in range(0, max(count, 1), size)
    ]  # fmt: skip
    return TokenStats(
        *(torch.cat([getattr(p, name) for p in pieces]) for name in TokenStats.__dataclass_fields__)
    )


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
    softcap = cap_of(weight)
    student_logits_NV = capped(_wide(F.linear(student_hidden, weight)), softcap)
    with torch.no_grad():
        teacher_logits_NV = capped(_wide(F.linear(teacher_hidden, weight)), softcap)
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


def divergence_terms(
    student_NV: torch.Tensor, teacher_NV: torch.Tensor, kind: Kind, beta: float
) -> torch.Tensor:
    """The contribution of every vocabulary entry, from two log-distributions.

    gjs: m = b*t + (1-b)*s, b*KL(t||m) + (1-b)*KL(s||m); rkl: KL(s||t); fkl: KL(t||s).
    """
    if kind == "rkl":
        return _kl_terms(student_NV, teacher_NV)
    if kind == "fkl":
        return _kl_terms(teacher_NV, student_NV)
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


def reply_hidden(
    body: torch.nn.Module,
    sequences: Sequence[Scored],
    device: torch.device | str = "cpu",
    row_tokens: int = 8192,
) -> torch.Tensor:
    """[N, d] hidden states that predict the reply tokens of all sequences, in order: one right-padded row a
    sequence.

    Rows of like length go through the model together, at most `row_tokens` tokens, padding included, at once.
    """
    rows = [[*context, *reply] for context, reply in sequences]
    states: list[torch.Tensor | None] = [None] * len(rows)
    batches: list[list[int]] = []
    for i in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        if batches and (len(batches[-1]) + 1) * len(rows[batches[-1][0]]) <= row_tokens:
            batches[-1].append(i)
        else:
            batches.append([i])
    for chosen in batches:
        longest = len(rows[chosen[0]])
        # Padding stands behind every real token, and the mask comes from lengths: a pad id may be a model's
        # end token.
        ids = torch.tensor([rows[i] + [0] * (longest - len(rows[i])) for i in chosen], device=device)
        mask = torch.tensor(
            [[1] * len(rows[i]) + [0] * (longest - len(rows[i])) for i in chosen], device=device
        )
        hidden_BLd = body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        for i, hidden_Ld in zip(chosen, hidden_BLd, strict=True):
            context, reply = sequences[i]
            # Position p holds the prediction of token p + 1, so reply token i is predicted at len(context) -
            # 1 + i.
            states[i] = hidden_Ld[len(context) - 1 : len(context) - 1 + len(reply)]
    return torch.cat([state for state in states if state is not None])

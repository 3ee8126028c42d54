"""The plain path: full logits and one padded row a turn, every intermediate in sight. Slow, and right: the
reference of the tests and of `benchmarks/`, the fallback where the head is trained or a model's attention
can't be packed.

A model that soft-caps its logits (Gemma 2: z = cap * tanh(z / cap)) has a `CappedHead`. Logits and softmax in
float32 whatever the inputs (float64 stays float64), natural logarithm. Shapes: N reply tokens, d hidden
width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.utils.rnn import pad_sequence

from smopd.errors import UserError
from smopd.scoring.losses import HiddenLoss, RowLoss, Rows, row_values
from smopd.scoring.products import wide_linear
from smopd.scoring.stats import Decide, TokenStats, check_rows

Scored = tuple[Sequence[int], Sequence[int]]  # context ids, reply ids


def predicting(context: Sequence[int], reply: Sequence[int]) -> slice:
    """Where a sequence predicts its reply's tokens: position p predicts token p + 1."""
    return slice(len(context) - 1, len(context) - 1 + len(reply))


class CappedHead(Tensor):
    """The weight of a head whose logits are soft-capped; the cap goes where the weight goes."""

    softcap: float
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # what is computed from it is a plain tensor

    @staticmethod
    def of(weight: Tensor, softcap: float) -> "CappedHead":
        """The same weight, not copied, with its cap."""
        # A sharded weight would lose its cap when it is gathered.
        if (kind := type(weight)) not in (Tensor, torch.nn.Parameter):
            expected = f"a soft-capped head must be a plain tensor, not {kind.__name__}"
            raise UserError(f"{expected}: train without train.shard")
        head = Tensor._make_subclass(CappedHead, weight.detach(), weight.requires_grad)
        head.softcap = softcap
        return head


def cap_of(weight: Tensor) -> float | None:
    """The soft cap of a head's logits, None where it has none."""
    return weight.softcap if isinstance(weight, CappedHead) else None


def capped(logits: Tensor, softcap: float | None) -> Tensor:
    """cap * tanh(logits / cap); the logits themselves without a cap."""
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def token_stats(
    student_hidden: Tensor, teacher_hidden: Tensor, lm_head_weight: Tensor, tokens: Tensor,
    losses: Sequence[RowLoss], chunk_size: int | None = None, lengths: Sequence[int] | None = None,
    decide: Decide | None = None, auxiliary: Tensor | None = None, alternatives: int = 0,
) -> list[TokenStats]:  # fmt: skip
    """`kernel.token_stats` by full logits and autograd, with every token's gradient, whatever is decided."""
    check_rows(student_hidden, teacher_hidden, tokens)
    inputs = [student_hidden, teacher_hidden, tokens, *([] if auxiliary is None else [auxiliary])]
    size, softcap = max(1, chunk_size or len(tokens)), cap_of(lm_head_weight)
    pieces = []  # of each chunk, the losses' values and the columns they share, in the order of `TokenStats`
    for student_nd, teacher_nd, tokens_n, *further in zip(*(c.split(size) for c in inputs), strict=True):
        student_logits_nV = capped(wide_linear(student_nd, lm_head_weight), softcap)
        with torch.no_grad():
            teacher_logits_nV = capped(wide_linear(teacher_nd, lm_head_weight), softcap)
            logps = [student_logits_nV.log_softmax(-1), teacher_logits_nV.log_softmax(-1)]
            shared = [_entropy(logp_nV) for logp_nV in logps]
            shared += [logp_nV.gather(-1, tokens_n[:, None])[:, 0] for logp_nV in logps]
            shared.append(logps[1].amax(-1))  # the teacher's highest
            if alternatives:
                best = (logp_nV.topk(min(alternatives, logp_nV.shape[1]), -1) for logp_nV in logps)
                top_logps, top_tokens = zip(*best, strict=True)
                shared += [torch.stack(top_tokens, 1), torch.stack(top_logps, 1)]
        rows, wide = Rows(student_logits_nV, teacher_logits_nV, tokens_n, *further), student_logits_nV.dtype
        hidden = Rows(student_nd.to(wide), teacher_nd.to(wide), tokens_n)
        values = [row_values(loss, hidden if isinstance(loss, HiddenLoss) else rows) for loss in losses]
        pieces.append((values, shared))
    of_losses, columns = (zip(*parts, strict=True) for parts in zip(*pieces, strict=True))
    a, b, c, d, top, *likeliest = map(torch.cat, columns)
    stats = [TokenStats(torch.cat(v), a, b, c, d, None, top, auxiliary, *likeliest) for v in of_losses]
    if decide is None or lengths is None:
        return stats
    replies = enumerate(zip(*(s.detached().split(lengths) for s in stats), strict=True))
    decided = [decide(number, reply) for number, reply in replies if lengths[number]]
    empty = top.new_zeros(0)
    return [
        replace(s, weight=torch.cat([empty, *(decisions[k].weight.to(empty.dtype) for decisions in decided)]))
        for k, s in enumerate(stats)
    ]


def _entropy(logp_NV: Tensor) -> Tensor:
    p = logp_NV.exp()
    return -torch.where(p > 0, p * logp_NV, torch.zeros_like(p)).sum(-1)


def reply_hidden(
    body: Module, sequences: Sequence[Scored], device: torch.device | str = "cpu", row_tokens: int = 8192
) -> Tensor:
    """`passes.reply_hidden` by right-padded rows of like length, `row_tokens` with padding at once."""
    rows = [[*context, *reply] for context, reply in sequences]
    states: dict[int, Tensor] = {}
    batches: list[list[int]] = []
    for i in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        if batches and (len(batches[-1]) + 1) * len(rows[batches[-1][0]]) <= row_tokens:
            batches[-1].append(i)
        else:
            batches.append([i])
    for chosen in batches:
        # Padding stands behind every real token; the mask comes from lengths: a pad id may be an end token.
        unpadded = [torch.tensor(rows[i]) for i in chosen]
        ids_BL = pad_sequence(unpadded, batch_first=True).to(device)
        mask_BL = pad_sequence([torch.ones_like(ids) for ids in unpadded], batch_first=True).to(device)
        hidden_BLd = body(input_ids=ids_BL, attention_mask=mask_BL, use_cache=False).last_hidden_state
        states.update((i, h[predicting(*sequences[i])]) for i, h in zip(chosen, hidden_BLd, strict=True))
    return torch.cat([states[i] for i in range(len(rows))])

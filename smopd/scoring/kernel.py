"""Row losses, entropies, log-probabilities and gradients of tokens without an [N, V] tensor alive.

With a frozen head, row i of a loss depends on row i of the hidden states alone. So the forward pass, chunk of
rows by chunk of rows, makes both logits (two products), the statistics, and dL_i/dh_i of each row loss (a
product more), and keeps only those [N, d] matrices; backward scales their rows. `decide` says once, as soon
as a reply's statistics are there, which tokens carry loss. On the CPU rows without gradient cost no product;
a device makes the product of all rows, since to ask it which of them move would make the host wait.

A chunk's logits stand in two buffers, which the last loss's gradient may take over. `scorer_of` chooses who
does the elementwise work on them: tiles of the vocabulary on the CPU (tiles.py), one Triton kernel a loss on
CUDA (triton_rows.py), torch's operations over whole chunks elsewhere (rows.py). Under a soft cap c (logits c
* tanh(z / c)) the gradient is times 1 - (logits / c)^2. Shapes: N tokens, d width, V vocabulary, n rows of a
chunk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smopd.scoring import plain, rows, tiles
from smopd.scoring.chunks import Piece, chunks_of, rows_at_once
from smopd.scoring.losses import Divergence, HiddenLoss, Kind, LogitLoss, RowLoss, as_loss, sampled_nll
from smopd.scoring.products import by_hidden_states, logits_into, wide_dtype, wide_linear
from smopd.scoring.stats import Decide, TokenStats, check_rows

PROFILE_BYTES = 200_000_000  # for the logits of a chunk of one model alone


def token_divergence(
    student_hidden: Tensor, teacher_hidden: Tensor, lm_head_weight: Tensor, tokens: Tensor,
    kind: Kind | LogitLoss = "gjs", beta: float = 0.5, temperature: float = 1.0,
    chunk_size: int | None = None, vocab_clip: float | None = None,
) -> TokenStats:  # fmt: skip
    """Statistics of `tokens` [N] under one divergence of hidden states [N, d] and a shared head [V, d].
    `kind` may be any function of two chunks of logits. `temperature` softens the divergence's two
    distributions alone; `vocab_clip` caps each vocabulary entry's part before the sum.
    """
    loss = as_loss(kind, beta, temperature, vocab_clip)
    return token_stats(student_hidden, teacher_hidden, lm_head_weight, tokens, [loss], chunk_size)[0]


def token_stats(
    student_hidden: Tensor, teacher_hidden: Tensor, lm_head_weight: Tensor, tokens: Tensor,
    losses: Sequence[RowLoss], chunk_size: int | None = None, lengths: Sequence[int] | None = None,
    decide: Decide | None = None, auxiliary: Tensor | None = None, alternatives: int = 0,
) -> list[TokenStats]:  # fmt: skip
    """Statistics of `tokens` [N] under each of the row losses; they differ in `divergence` and `weight`
    alone. With `lengths` (reply by reply) and `decide` every token gets its weight, and rows that cannot move
    the loss get no gradient. `auxiliary` [N, K] goes to losses and `decide` as it is; `alternatives`: how
    many of each model's likeliest tokens are told as well; `chunk_size`: rows computed at once (default: by
    memory).
    """
    check_rows(student_hidden, teacher_hidden, tokens)
    if lm_head_weight.requires_grad and torch.is_grad_enabled():
        # Rows are no longer independent: the head's own gradient sums over all of them.
        return plain.token_stats(
            student_hidden, teacher_hidden, lm_head_weight, tokens, losses, chunk_size, lengths, decide,
            auxiliary, alternatives,
        )  # fmt: skip
    count, vocabulary = student_hidden.shape[0], lm_head_weight.shape[0]
    wide = wide_dtype(student_hidden.dtype)
    softcap = plain.cap_of(lm_head_weight)
    score, buffers = scorer_of(student_hidden.device, wide, losses, softcap)
    size = chunk_size or rows_at_once(student_hidden.device, buffers * vocabulary * wide.itemsize)
    replies = list(lengths) if lengths is not None and decide is not None else [count]
    with_gradient = student_hidden.requires_grad and torch.is_grad_enabled()
    job = _Job(
        list(losses), score, chunks_of(replies, size), decide, wide, with_gradient, auxiliary, alternatives,
        softcap,
    )  # fmt: skip
    columns = _Fused.apply(student_hidden, teacher_hidden.detach(), lm_head_weight.detach(), tokens, job)
    *values, a, b, c, d, top = columns
    likeliest = [torch.cat(parts) for parts in zip(*job.likeliest, strict=True)]
    weights = [torch.cat(parts) for parts in job.weights] if decide else [None] * len(losses)
    pairs = zip(values, weights, strict=True)
    return [TokenStats(value, a, b, c, d, weight, top, auxiliary, *likeliest) for value, weight in pairs]


def scorer_of(
    device: torch.device, wide: torch.dtype, losses: Sequence[RowLoss], softcap: float | None
) -> tuple[rows.Score, int]:
    """What does a chunk's elementwise work, and how many buffers of the size of a chunk's logits it takes."""
    if device.type == "cpu":
        return rows.under_soft_cap(tiles.score, softcap), 2 if softcap is None else 3
    known = (isinstance(loss, Divergence | HiddenLoss) or loss is sampled_nll() for loss in losses)
    closed = wide == torch.float32 and all(known)  # value and gradient come without autograd through logits
    if device.type == "cuda" and closed and find_spec("triton") is not None:
        from smopd.scoring import triton_rows

        return partial(triton_rows.score, softcap=softcap), 2 + len(losses)
    return rows.under_soft_cap(rows.score, softcap), rows.BUFFERS + len(losses)


@dataclass
class _Job:
    """What the kernel needs besides tensors, and what it finds besides columns."""

    losses: list[RowLoss]
    score: rows.Score
    chunks: list[list[Piece]]
    decide: Decide | None
    wide: torch.dtype
    with_gradient: bool
    auxiliary: Tensor | None
    alternatives: int
    softcap: float | None
    weights: list[list[Tensor]] = field(default_factory=list)  # of each loss, reply by reply
    # Of each chunk [n, 2, k] ids and log-probabilities of both models' likeliest tokens, where asked for.
    likeliest: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class _Fused(torch.autograd.Function):
    """Rows in, per-token vectors out; gradients by the student's rows are ready when forward ends."""

    @staticmethod
    def forward(
        ctx: Any, student: Tensor, teacher: Tensor, weight: Tensor, tokens: Tensor, job: _Job
    ) -> tuple[Tensor, ...]:
        count, losses = student.shape[0], len(job.losses)
        empty = torch.empty(0, dtype=job.wide, device=student.device)
        columns = [empty.new_empty(count) for _ in range(losses + 5)]
        job.weights = [[empty] for _ in range(losses)]
        gradients = [empty.new_zeros(student.shape) for _ in range(losses)] if job.with_gradient else []
        most = max((sum(piece.rows for piece in chunk) for chunk in job.chunks), default=0)
        buffers = [empty.new_empty(most, weight.shape[0]) for _ in range(2)]
        first = 0
        for pieces in job.chunks:
            part = slice(first, first := first + sum(piece.rows for piece in pieces))
            zs, zt = (buffer[: part.stop - part.start] for buffer in buffers)
            logits_into(zs, student[part], weight)
            logits_into(zt, teacher[part], weight)
            extra = None if job.auxiliary is None else job.auxiliary[part]
            chunk = rows.Chunk(zs, zt, tokens[part], extra, (student[part], teacher[part]))
            # Before anybody writes over the logits.
            highest = [_find_highest(z, tokens[part], job) for z in (zs, zt)] if job.alternatives else []
            scored = job.score(chunk, job.losses, job.with_gradient)
            if highest:
                ids, above = (torch.stack(both, 1) for both in zip(*highest, strict=True))
                job.likeliest.append((ids, above + torch.stack(scored.shared[2:4], 1)[..., None]))
            values = [value for value, _ in scored.losses]
            for column, numbers in zip(columns, [*values, *scored.shared], strict=True):
                column[part] = numbers
            moving = _select_moving(columns, part, pieces, job)
            for gradient, (_, of_chunk), moves in zip(gradients, scored.losses, moving, strict=False):
                _keep_gradient(gradient[part], of_chunk, moves, weight, zt)
        ctx.save_for_backward(*gradients)
        ctx.dtype = student.dtype
        ctx.mark_non_differentiable(*columns[losses:])
        return tuple(columns)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.saved_tensors, upstream, strict=False)
        scaled = [gradient * above[:, None].to(gradient.dtype) for gradient, above in pairs]
        return sum(scaled[1:], start=scaled[0]).to(ctx.dtype), None, None, None, None


def _find_highest(z_nV: Tensor, tokens_n: Tensor, job: _Job) -> tuple[Tensor, Tensor]:
    """[n, k] ids of the highest uncapped logits (a soft cap keeps their order), and how far above the sampled
    token's each is when capped: with that token's log-probability it is its own.
    """
    values, ids = z_nV.topk(min(job.alternatives, z_nV.shape[1]), -1)
    sampled = z_nV.gather(-1, tokens_n[:, None])
    return ids, plain.capped(values, job.softcap) - plain.capped(sampled, job.softcap)


def _keep_gradient(
    out_nd: Tensor, gradient: rows.Gradient, moves: Tensor | None, weight: Tensor, spare_nV: Tensor
) -> None:
    """Write the gradient by hidden states of every row that can move its loss; the others stay zero."""
    slope, factor = gradient
    if factor is None:  # by hidden states already
        product = slope
    elif moves is not None and moves.device.type == "cpu" and not moves.all():
        if moves.any():
            chosen = moves.nonzero()[:, 0]
            # the teacher's buffer is used up by now: it takes the rows that are left
            left = torch.index_select(slope, 0, chosen, out=spare_nV[: len(chosen)])
            out_nd[chosen] = by_hidden_states(left, weight).mul_(factor)
        return
    else:
        product = by_hidden_states(slope, weight).mul_(factor)
    out_nd.copy_(product if moves is None else torch.where(moves[:, None], product, 0))


def _select_moving(columns: list[Tensor], part: slice, pieces: list[Piece], job: _Job) -> list[Tensor | None]:
    """For each loss, which of the chunk's rows can move it; keeps the weights that were decided. None: all,
    as of a reply that was cut, since it is decided when its last rows are there.
    """
    if job.decide is None:
        return [None] * len(job.losses)
    moving: list[list[Tensor]] = [[] for _ in job.losses]
    last = part.start
    for piece in pieces:
        last += piece.rows
        if piece.last:
            reply = slice(last - piece.length, last)
            *values, a, b, c, d, top = (column[reply] for column in columns)
            extra = None if job.auxiliary is None else job.auxiliary[reply]
            stats = [TokenStats(value, a, b, c, d, None, top, extra) for value in values]
            for k, decision in enumerate(job.decide(piece.reply, stats)):
                job.weights[k].append(decision.weight.to(job.wide))
                moving[k].append(decision.has_gradient)
    # A chunk holds whole replies, or a part of one.
    whole = pieces[0].rows == pieces[0].length
    return [torch.cat(moves) for moves in moving] if whole else [None] * len(job.losses)


class TokenProfile(NamedTuple):
    logp: Tensor  # [N] of the token
    entropy: Tensor  # [N] nats
    top_tokens: Tensor  # [N, k] ids, the likeliest first
    top_logps: Tensor  # [N, k]


@torch.no_grad()
def token_profile(hidden: Tensor, lm_head_weight: Tensor, tokens: Tensor, count: int) -> TokenProfile:
    """What hidden states [N, d] and a head [V, d] say of `tokens`, with the `count` likeliest at each."""
    chunks = []
    for logits, sampled in _logit_chunks(hidden, lm_head_weight, tokens):
        log_p = logits.log_softmax(-1)
        best = log_p.topk(min(count, log_p.shape[1]), -1)
        chunks.append((log_p.gather(-1, sampled)[:, 0], rows.entropy(log_p), best.indices, best.values))
    return TokenProfile(*map(torch.cat, zip(*chunks, strict=True)))


@torch.no_grad()
def sampled_logps(hidden: Tensor, lm_head_weight: Tensor, tokens: Tensor) -> Tensor:
    """[N] log-probabilities of `tokens` from hidden states [N, d] and a head [V, d], in float32 at least."""
    chunks = _logit_chunks(hidden, lm_head_weight, tokens)
    return torch.cat([z.gather(-1, sampled)[:, 0] - z.logsumexp(-1) for z, sampled in chunks])


def _logit_chunks(hidden: Tensor, weight: Tensor, tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits [n, V] and sampled tokens [n, 1] of one model, chunk by chunk."""
    size = max(1, PROFILE_BYTES // (weight.shape[0] * wide_dtype(hidden.dtype).itemsize))
    for part, sampled in zip(hidden.split(size), tokens.split(size), strict=True):
        yield plain.capped(wide_linear(part, weight), plain.cap_of(weight)), sampled[:, None]

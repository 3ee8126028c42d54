"""The per-token operation without an [N, V] tensor alive: row losses, entropies, log-probabilities and
gradients in one go.

With a frozen head, row i of a loss depends on row i of the hidden states alone. So the forward pass, chunk of
rows by chunk of rows, makes both logits (two products), the statistics, and dL_i/dh_i of each row loss (a
product more), and keeps only those [N, d] matrices; backward scales their rows. Which tokens carry loss is
decided once, by `decide`, as soon as the statistics of a reply are there: rows without gradient cost no
product, and the loss reads the same decision.

A chunk's logits stand in two buffers, which the last loss's gradient takes over; elementwise work runs over
tiles of the vocabulary that fit the cache. Shapes: N tokens, d width, V vocabulary, n rows of a chunk, v
entries of a tile.

With s, t the two distributions and L = log s - log m (gjs) or log s - log t (rkl), the gradient by student
logits is gjs: (1-b) * s * (L - sum s*L)     rkl: s * (L - sum s*L)     fkl: s - t     nll: s - onehot(y)
Under a soft cap c (logits c * tanh(z / c)) it is times 1 - (logits / c)^2, which stands in a third buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from smopd.scoring import plain
from smopd.scoring.losses import (
    Divergence,
    HiddenLoss,
    Kind,
    LogitLoss,
    RowLoss,
    Rows,
    as_loss,
    sampled_nll,
)  # fmt: skip
from smopd.scoring.stats import Decide, TokenStats, check_rows

CHUNK_BYTES = 400_000_000  # for the two logit buffers of a chunk
# Of a chunk's rows at once in elementwise work: a quarter megabyte, within the second-level cache.
TILE_ENTRIES = 1 << 16


def token_divergence(
    student_hidden: torch.Tensor,
    teacher_hidden: torch.Tensor,
    lm_head_weight: torch.Tensor,
    tokens: torch.Tensor,
    kind: Kind | LogitLoss = "gjs",
    beta: float = 0.5,
    temperature: float = 1.0,
    chunk_size: int | None = None,
    vocab_clip: float | None = None,
) -> TokenStats:
    """Statistics of `tokens` [N] under one divergence of hidden states [N, d] and a shared head [V, d].

    `kind` may be any function of two chunks of logits. `temperature` softens the two distributions of the
    divergence; entropies and log-probabilities are at temperature 1. `vocab_clip` caps each vocabulary
    entry's part before the sum.
    """
    loss = as_loss(kind, beta, temperature, vocab_clip)
    return token_stats(student_hidden, teacher_hidden, lm_head_weight, tokens, [loss], chunk_size)[0]


def token_stats(
    student_hidden: torch.Tensor,
    teacher_hidden: torch.Tensor,
    lm_head_weight: torch.Tensor,
    tokens: torch.Tensor,
    losses: Sequence[RowLoss],
    chunk_size: int | None = None,
    lengths: Sequence[int] | None = None,
    decide: Decide | None = None,
    auxiliary: torch.Tensor | None = None,
) -> list[TokenStats]:
    """Statistics of `tokens` [N] under each of the row losses; they differ in `divergence` and `weight`
    alone. `auxiliary` [N, K] goes to the row losses and to `decide` as it is.

    `chunk_size` bounds the rows computed at once (default: by memory). With `lengths` (reply by reply) and
    `decide` every token gets its weight, and rows that cannot move the loss cost no product and get no
    gradient.
    """
    check_rows(student_hidden, teacher_hidden, tokens)
    if lm_head_weight.requires_grad and torch.is_grad_enabled():
        # Rows are no longer independent: the head's own gradient sums over all of them.
        return plain.token_stats(
            student_hidden, teacher_hidden, lm_head_weight, tokens, losses, chunk_size, lengths, decide,
            auxiliary,
        )  # fmt: skip
    count, vocabulary = student_hidden.shape[0], lm_head_weight.shape[0]
    wide = torch.float64 if student_hidden.dtype == torch.float64 else torch.float32
    softcap = plain.cap_of(lm_head_weight)
    size = chunk_size or max(1, CHUNK_BYTES // ((2 if softcap is None else 3) * vocabulary * wide.itemsize))
    replies = list(lengths) if lengths is not None and decide is not None else [count]
    with_gradient = student_hidden.requires_grad and torch.is_grad_enabled()
    job = _Job(list(losses), _chunks(replies, size), decide, wide, with_gradient, softcap, auxiliary)
    columns = _Fused.apply(student_hidden, teacher_hidden.detach(), lm_head_weight.detach(), tokens, job)
    entropy, teacher_entropy, student_logp, teacher_logp, top = columns[len(losses) :]
    return [
        TokenStats(columns[k], entropy, teacher_entropy, student_logp, teacher_logp, weight, top, auxiliary)
        for k, weight in enumerate(job.weights)
    ]


@dataclass(frozen=True)
class Piece:
    """Rows of one reply in a chunk: the `whole` of it, or a part, the `last` or not."""

    rows: int
    reply: int
    whole: bool = True
    last: bool = True


def _chunks(lengths: Sequence[int], size: int) -> list[list[Piece]]:
    """Whole replies up to `size` rows a chunk; a longer reply is cut into chunks of its own."""
    chunks: list[list[Piece]] = []
    room = 0
    for number, length in enumerate(lengths):
        if length and length <= room:
            chunks[-1].append(Piece(length, number))
            room -= length
        elif length:
            rows = [min(size, length - i) for i in range(0, length, size)]
            cut = len(rows) > 1
            chunks += [[Piece(n, number, not cut, k == len(rows) - 1)] for k, n in enumerate(rows)]
            room = 0 if cut else size - length
    return chunks


@dataclass
class _Job:
    """What the kernel needs besides tensors, and the weights it was told."""

    losses: list[RowLoss]
    chunks: list[list[Piece]]
    decide: Decide | None
    wide: torch.dtype
    with_gradient: bool
    softcap: float | None
    auxiliary: torch.Tensor | None = None
    weights: list[torch.Tensor | None] = field(default_factory=list)


class _Fused(torch.autograd.Function):
    """Rows in, per-token vectors out; gradients by the student's rows are ready when forward ends."""

    @staticmethod
    def forward(
        ctx: Any,
        student: torch.Tensor,
        teacher: torch.Tensor,
        weight: torch.Tensor,
        tokens: torch.Tensor,
        job: _Job,
    ) -> tuple[torch.Tensor, ...]:
        count, losses = student.shape[0], len(job.losses)
        columns = [torch.empty(count, dtype=job.wide, device=student.device) for _ in range(losses + 5)]
        job.weights = [torch.zeros_like(columns[0]) if job.decide else None for _ in range(losses)]
        gradients = [torch.zeros_like(student) for _ in range(losses)] if job.with_gradient else []
        most = max((sum(piece.rows for piece in chunk) for chunk in job.chunks), default=0)
        buffers = [
            torch.empty(most, weight.shape[0], dtype=job.wide, device=student.device) for _ in range(2)
        ]
        first = 0
        for chunk in job.chunks:
            rows = slice(first, first := first + sum(piece.rows for piece in chunk))
            zs, zt = (buffer[: rows.stop - rows.start] for buffer in buffers)
            _logits(student[rows], weight, zs)
            _logits(teacher[rows], weight, zt)
            slopes = _soft_cap(zs, zt, job)
            extra = None if job.auxiliary is None else job.auxiliary[rows]
            made, slopes_of = _score(zs, zt, tokens[rows], extra, (student[rows], teacher[rows]), job)
            for column, values in zip(columns, made, strict=True):
                column[rows] = values
            moving = _decided(columns, rows, chunk, job)
            for gradient, (slope_nV, factor), moves in zip(gradients, slopes_of, moving, strict=False):
                if factor is None:  # by hidden states already
                    gradient[rows] = slope_nV * moves[:, None]
                    continue
                if slopes is not None:
                    slope_nV.mul_(slopes)
                if moves.all():
                    gradient[rows] = (slope_nV.to(weight.dtype) @ weight).mul_(factor)
                elif moves.any():
                    chosen = moves.nonzero()[:, 0]
                    # the teacher's buffer is used up by now: it takes the rows that are left
                    left = torch.index_select(slope_nV, 0, chosen, out=zt[: len(chosen)])
                    gradient[rows.start + chosen] = (left.to(weight.dtype) @ weight).mul_(factor)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(*columns[losses:])
        return tuple(columns)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scaled = [
            gradient * above[:, None].to(gradient.dtype)
            for gradient, above in zip(ctx.saved_tensors, upstream, strict=False)
        ]
        return sum(scaled[1:], start=scaled[0]), None, None, None, None


def _logits(hidden: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    if hidden.dtype == weight.dtype == out.dtype:
        torch.mm(hidden, weight.T, out=out)
    else:
        out.copy_(hidden.to(weight.dtype) @ weight.T)


def _soft_cap(zs: torch.Tensor, zt: torch.Tensor, job: _Job) -> torch.Tensor | None:
    """Soft-cap both logits in place; the slope of the student's cap, where a gradient is wanted."""
    if job.softcap is None:
        return None
    for z in (zs, zt):
        z.div_(job.softcap).tanh_()
    slopes = zs.square().neg_().add_(1) if job.with_gradient else None
    for z in (zs, zt):
        z.mul_(job.softcap)
    return slopes


def _decided(columns: list[torch.Tensor], rows: slice, chunk: list[Piece], job: _Job) -> list[torch.Tensor]:
    """For each loss, which of the chunk's rows can move it; keeps the weights that were decided.

    A reply that was cut is decided when its last rows are there, so all of its rows are made.
    """
    moving = [
        torch.ones(rows.stop - rows.start, dtype=torch.bool, device=columns[0].device) for _ in job.losses
    ]
    if job.decide is None:
        return moving
    first = rows.start
    for piece in chunk:
        last = first + piece.rows
        if piece.last:
            begin = (
                first
                if piece.whole
                else last - sum(p.rows for c in job.chunks for p in c if p.reply == piece.reply)
            )
            a, b, c, d, top = (column[begin:last] for column in columns[len(job.losses) :])
            extra = None if job.auxiliary is None else job.auxiliary[begin:last]
            own = (columns[k][begin:last] for k in range(len(job.losses)))
            stats = [TokenStats(column, a, b, c, d, None, top, extra) for column in own]
            for k, decision in enumerate(job.decide(piece.reply, stats)):
                kept = job.weights[k]
                assert kept is not None
                kept[begin:last] = decision.weight
                if piece.whole:
                    moving[k][first - rows.start : last - rows.start] = decision.moves
        first = last
    return moving


# dL/dz of the student [n, V] and a factor it still needs; or dL/dh [n, d] and None.
Gradient = tuple[torch.Tensor, float | None]


def _score(
    zs: torch.Tensor,
    zt: torch.Tensor,
    tokens: torch.Tensor,
    auxiliary: torch.Tensor | None,
    hidden: tuple[torch.Tensor, torch.Tensor],
    job: _Job,
) -> tuple[list[torch.Tensor], list[Gradient]]:
    """The columns of a chunk, and the gradient of each loss by student logits, where wanted.

    The last loss works in place of the logits; the ones before it work on copies.
    """
    values: list[torch.Tensor] = []
    gradients: list[Gradient] = []
    entropies: tuple[torch.Tensor, torch.Tensor] | None = None
    (log_sum_s, _), (log_sum_t, top_t) = _log_sum(zs), _log_sum(zt)
    log_sums = log_sum_s, log_sum_t
    logps = [z.gather(-1, tokens[:, None]).sub_(c)[:, 0] for z, c in zip((zs, zt), log_sums, strict=True)]
    for number, loss in enumerate(job.losses):
        final = number == len(job.losses) - 1
        if isinstance(loss, Divergence) and loss.entry_cap is None:
            if loss.temperature == 1:
                a, b = (zs, zt) if final else (zs.clone(), zt.clone())
                value, entropy_s, entropy_t, factor = _divergence(a, b, *log_sums, loss, job.with_gradient)
                entropies = entropy_s, entropy_t
            else:
                if final and entropies is None:
                    entropies = _entropy(zs, log_sums[0]), _entropy(zt, log_sums[1])
                a, b = zs / loss.temperature, zt / loss.temperature
                value, _, _, factor = _divergence(
                    a, b, _log_sum(a)[0], _log_sum(b)[0], loss, job.with_gradient
                )
                factor /= loss.temperature
            gradients.append((a, factor))
        else:
            if final and entropies is None:
                entropies = _entropy(zs, log_sums[0]), _entropy(zt, log_sums[1])
            if loss is sampled_nll():
                value = -logps[0]
                slope = (zs if final else zs.clone()).sub_(log_sums[0]).exp_() if job.with_gradient else zs
                if job.with_gradient:
                    slope[torch.arange(len(tokens), device=slope.device), tokens] -= 1
            elif isinstance(loss, HiddenLoss):
                value, slope = _by_hidden(*hidden, loss, job.with_gradient)
            else:
                rows = Rows(zs, zt, tokens, auxiliary)
                value, slope = _by_autograd(rows, loss, job.with_gradient)
            gradients.append((slope, None if isinstance(loss, HiddenLoss) else 1.0))
        values.append(value)
    assert entropies is not None
    top = (top_t - log_sum_t)[:, 0]
    return [*values, *entropies, *logps, top], gradients if job.with_gradient else []


def _tiles(z: torch.Tensor) -> list[slice]:
    width = max(256, TILE_ENTRIES // max(1, z.shape[0]))
    return [slice(i, min(i + width, z.shape[1])) for i in range(0, z.shape[1], width)]


def _log_sum(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, 1] log of the sum of exponentials, tile by tile, and the largest."""
    top_n1 = z.amax(-1, keepdim=True)
    total_n1 = torch.zeros_like(top_n1)
    for tile in _tiles(z):
        total_n1 += (z[:, tile] - top_n1).exp_().sum(-1, keepdim=True)
    return total_n1.log_().add_(top_n1), top_n1


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Row by row, without a product tensor in between."""
    return torch.bmm(a[:, None, :], b[:, :, None])[:, 0, 0]


def _divergence(
    zs: torch.Tensor,
    zt: torch.Tensor,
    log_sum_s: torch.Tensor,
    log_sum_t: torch.Tensor,
    loss: Divergence,
    with_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Divergence, both entropies, and the factor of the gradient by student logits that `zs` becomes, if one
    is wanted.

    Everything is made of four inner products a row: s.log s, t.log t, s.log m, t.log m (for a KL divergence m
    is the other one).
    """
    kind, beta = loss.kind, loss.beta
    s_own, t_own, s_cross, t_cross = (zs.new_zeros(zs.shape[0]) for _ in range(4))
    for tile in _tiles(zs):
        a, b = zs[:, tile].sub_(log_sum_s), zt[:, tile].sub_(log_sum_t)  # log s, log t
        t = b.exp()
        t_own += _dot(t, b)
        if kind == "gjs":
            s = torch.exp(a, out=b)
            s_own += _dot(s, a)
            # where both underflow to zero the mixture must not become log 0: 0 times infinity is no number
            log_m = torch.lerp(s, t, beta).clamp_min_(torch.finfo(s.dtype).tiny).log_()
            s_cross += _dot(s, log_m)
            t_cross += _dot(t, log_m)
        else:
            s = a.exp()
            s_own += _dot(s, a)
            s_cross += _dot(s, b)
            t_cross += _dot(t, a)
            log_m = b.clone() if kind == "rkl" else b
        if not with_gradient:
            continue
        if kind == "fkl":
            torch.sub(s, t, out=a)
        else:
            a.sub_(log_m).mul_(s)  # s*L
            if kind == "rkl":
                b.copy_(s)
    student_half, teacher_half = s_own - s_cross, t_own - t_cross
    if with_gradient and kind != "fkl":
        zs.addcmul_(zt, student_half[:, None], value=-1)  # s*L - s * sum s*L
    share = {"gjs": 1 - beta, "rkl": 1.0, "fkl": 0.0}[kind]
    divergence = share * student_half + {"gjs": beta, "rkl": 0.0, "fkl": 1.0}[kind] * teacher_half
    # A difference of sums may round below zero; no divergence is.
    return divergence.clamp_min_(0), -s_own, -t_own, share or 1.0


def _entropy(z: torch.Tensor, log_sum: torch.Tensor) -> torch.Tensor:
    total = z.new_zeros(z.shape[0])
    for tile in _tiles(z):
        log_p = z[:, tile] - log_sum
        total -= _dot(log_p.exp(), log_p)
    return total


def _by_hidden(
    student: torch.Tensor, teacher: torch.Tensor, loss: HiddenLoss, with_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and gradient of a loss of hidden states."""
    with torch.enable_grad():
        rows = student.detach().requires_grad_()
        value = loss.of_hidden(rows, teacher)
        if not with_gradient:
            return value.detach(), student
        (by_hidden,) = torch.autograd.grad(value.sum(), rows)
    return value.detach(), by_hidden


def _by_autograd(rows: Rows, loss: RowLoss, with_gradient: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and gradient of any row loss; the logits themselves stay as they are."""
    with torch.enable_grad():
        student = rows.student.clone().requires_grad_()
        value = loss.value(rows._replace(student=student, teacher=rows.teacher.clone()))
        if not with_gradient:
            return value.detach(), rows.student
        (by_logits,) = torch.autograd.grad(value.sum(), student)
    return value.detach(), by_logits

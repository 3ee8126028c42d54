"""The per-token operation without an [N, V] tensor alive: divergence, entropies, log-probabilities and the
gradient in one go.

With a frozen head, row i of the loss depends on row i of the hidden states alone. So the forward pass, chunk
of rows by chunk of rows, makes both logits (two products), the statistics, and dD_i/dh_i (a third product),
and keeps only that [N, d] matrix; backward scales its rows. A chunk's logits stand in two buffers, which the
gradient takes over; elementwise work runs over tiles of the vocabulary that fit the cache. Shapes: N tokens,
d width, V vocabulary, n rows of a chunk, v entries of a tile.

With s, t the two distributions and L = log s - log m (gjs) or log s - log t (rkl), the gradient by student
logits is gjs: (1-b) * s * (L - sum s*L)     rkl: s * (L - sum s*L)     fkl: s - t Under a soft cap c (logits
c * tanh(z / c)) it is times 1 - (logits / c)^2, which stands in a third buffer.
"""

from collections.abc import Callable
from typing import Any

import torch

from smopd.scoring import plain
from smopd.scoring.stats import Kind, TokenStats, check_arguments

Divergence = Callable[
    [torch.Tensor, torch.Tensor], torch.Tensor
]  # student logits [n, V], teacher logits [n, V] -> [n]
Needed = Callable[
    [TokenStats, int], torch.Tensor
]  # statistics of reply k, and k -> which of its tokens will carry loss

CHUNK_BYTES = 400_000_000  # for the two logit buffers of a chunk
TILE_ENTRIES = (
    1 << 16
)  # of a chunk's rows at once in elementwise work: a quarter megabyte, within the second-level cache


def token_divergence(
    student_hidden: torch.Tensor,
    teacher_hidden: torch.Tensor,
    lm_head_weight: torch.Tensor,
    tokens: torch.Tensor,
    kind: Kind | Divergence = "gjs",
    beta: float = 0.5,
    temperature: float = 1.0,
    chunk_size: int | None = None,
    vocab_clip: float | None = None,
    lengths: list[int] | None = None,
    needed: Needed | None = None,
) -> TokenStats:
    """Divergence, entropies and log-probabilities of `tokens` [N] under hidden states [N, d] and a shared
    head [V, d].

    `kind` may be any function of two chunks of logits; its gradient then comes from autograd inside the
    chunk. `temperature` softens the two distributions of the divergence; entropies and log-probabilities are
    at temperature 1. `vocab_clip` caps each vocabulary entry's contribution before the sum. `chunk_size`
    bounds the rows computed at once (default: by memory). With `lengths` (reply by reply) and `needed`,
    tokens that will carry no loss cost no gradient product, and get no gradient.
    """
    check_arguments(student_hidden, teacher_hidden, tokens, kind, beta)
    if lm_head_weight.requires_grad and torch.is_grad_enabled() and not callable(kind):
        # Rows are no longer independent: the head's own gradient sums over all of them.
        return plain.token_divergence(
            student_hidden,
            teacher_hidden,
            lm_head_weight,
            tokens,
            kind,
            beta,
            temperature,
            chunk_size,
            vocab_clip,
        )
    count, vocabulary = student_hidden.shape[0], lm_head_weight.shape[0]
    wide = torch.float64 if student_hidden.dtype == torch.float64 else torch.float32
    softcap = plain.cap_of(lm_head_weight)
    size = chunk_size or max(1, CHUNK_BYTES // ((2 if softcap is None else 3) * vocabulary * wide.itemsize))
    replies = lengths if lengths is not None and needed is not None else [count]
    with_gradient = student_hidden.requires_grad and torch.is_grad_enabled()
    options = _Options(
        kind, beta, temperature, vocab_clip, needed, _plan(replies, size), wide, with_gradient, softcap
    )
    columns = _Fused.apply(student_hidden, teacher_hidden.detach(), lm_head_weight.detach(), tokens, options)
    return TokenStats(*columns)


Piece = tuple[
    int, int | None
]  # rows, and the number of the reply they are the whole of; None for a part of one


def _plan(lengths: list[int], size: int) -> list[list[Piece]]:
    """Chunks of whole replies up to `size` rows; a longer reply is cut into chunks of its own."""
    chunks: list[list[Piece]] = []
    room = 0
    for number, length in enumerate(lengths):
        if length and length <= room:
            chunks[-1].append((length, number))
            room -= length
        elif length:
            pieces = [min(size, length - i) for i in range(0, length, size)]
            chunks += [[(piece, number if len(pieces) == 1 else None)] for piece in pieces]
            room = size - length if len(pieces) == 1 else 0
    return chunks


class _Options:
    """What the kernel needs besides tensors."""

    def __init__(
        self,
        kind: Kind | Divergence,
        beta: float,
        temperature: float,
        vocab_clip: float | None,
        needed: Needed | None,
        plan: list[list[Piece]],
        wide: torch.dtype,
        with_gradient: bool,
        softcap: float | None,
    ) -> None:
        self.kind, self.beta, self.temperature = kind, beta, temperature
        if vocab_clip is not None and not callable(kind):
            cap, name = vocab_clip, kind
            self.kind = lambda s, t: (
                plain.divergence_terms(s.log_softmax(-1), t.log_softmax(-1), name, beta)
                .clamp_max(cap)
                .sum(-1)
            )
        self.needed, self.plan, self.wide, self.with_gradient, self.softcap = (
            needed,
            plan,
            wide,
            with_gradient,
            softcap,
        )


class _Fused(torch.autograd.Function):
    """Rows in, per-token vectors out; the gradient by the student's hidden states is ready when forward ends."""

    @staticmethod
    def forward(
        ctx: Any,
        student: torch.Tensor,
        teacher: torch.Tensor,
        weight: torch.Tensor,
        tokens: torch.Tensor,
        options: _Options,
    ) -> tuple[torch.Tensor, ...]:
        count = student.shape[0]
        columns = [torch.empty(count, dtype=options.wide, device=student.device) for _ in range(5)]
        gradient = torch.zeros_like(student) if options.with_gradient else None
        rows = max((sum(length for length, _ in chunk) for chunk in options.plan), default=0)
        buffers = [
            torch.empty(rows, weight.shape[0], dtype=options.wide, device=student.device) for _ in range(2)
        ]
        first = 0
        for chunk in options.plan:
            part = slice(first, first := first + sum(length for length, _ in chunk))
            zs, zt = (buffer[: part.stop - part.start] for buffer in buffers)
            _logits(student[part], weight, zs)
            _logits(teacher[part], weight, zt)
            slopes = _cap(zs, zt, options)
            stats, by_logits, factor = _score(zs, zt, tokens[part], options)
            for column, name in zip(columns, TokenStats.__dataclass_fields__, strict=True):
                column[part] = getattr(stats, name)
            if gradient is not None and by_logits is not None:
                if slopes is not None:
                    by_logits.mul_(slopes)
                wanted = _wanted(stats, chunk, options.needed)
                if wanted.all():
                    gradient[part] = (by_logits.to(weight.dtype) @ weight).mul_(factor)
                elif wanted.any():
                    chosen = wanted.nonzero()[:, 0]
                    # the teacher's buffer is used up by now: it takes the rows that are left
                    rows_left = torch.index_select(by_logits, 0, chosen, out=zt[: len(chosen)])
                    gradient[part.start + chosen] = (rows_left.to(weight.dtype) @ weight).mul_(factor)
        if gradient is not None:
            ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(*columns[1:])
        return tuple(columns)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[0][:, None].to(gradient.dtype), None, None, None, None


def _logits(hidden: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    if hidden.dtype == weight.dtype == out.dtype:
        torch.mm(hidden, weight.T, out=out)
    else:
        out.copy_(hidden.to(weight.dtype) @ weight.T)


def _cap(zs: torch.Tensor, zt: torch.Tensor, options: _Options) -> torch.Tensor | None:
    """Soft-cap both logits in place; the slope of the student's cap, where a gradient is wanted."""
    if options.softcap is None:
        return None
    for z in (zs, zt):
        z.div_(options.softcap).tanh_()
    slopes = zs.square().neg_().add_(1) if options.with_gradient else None
    for z in (zs, zt):
        z.mul_(options.softcap)
    return slopes


def _wanted(stats: TokenStats, chunk: list[Piece], needed: Needed | None) -> torch.Tensor:
    """Which rows need a gradient; all rows of a reply that was cut, since `needed` judges whole replies."""
    pieces = zip(stats.split([length for length, _ in chunk]), chunk, strict=True)
    return torch.cat(
        [
            needed(reply, number)
            if needed and number is not None
            else torch.ones_like(reply.divergence, dtype=torch.bool)
            for reply, (_, number) in pieces
        ]
    )


def _tiles(z: torch.Tensor) -> list[slice]:
    width = max(256, TILE_ENTRIES // max(1, z.shape[0]))
    return [slice(i, min(i + width, z.shape[1])) for i in range(0, z.shape[1], width)]


def _normaliser(z: torch.Tensor) -> torch.Tensor:
    """[n, 1] log of the sum of exponentials, tile by tile."""
    top_n1 = z.amax(-1, keepdim=True)
    total_n1 = torch.zeros_like(top_n1)
    for tile in _tiles(z):
        total_n1 += (z[:, tile] - top_n1).exp_().sum(-1, keepdim=True)
    return total_n1.log_().add_(top_n1)


def _dot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Row by row, without a product tensor in between."""
    return torch.bmm(a[:, None, :], b[:, :, None])[:, 0, 0]


def _score(
    zs: torch.Tensor, zt: torch.Tensor, tokens: torch.Tensor, options: _Options
) -> tuple[TokenStats, torch.Tensor | None, float]:
    """Statistics of a chunk; dD/dz_s in place of the student's logits, where wanted, and the factor it still
    needs.
    """
    by_logits: torch.Tensor | None = None
    divergence: torch.Tensor | None = None
    factor = 1.0
    if callable(options.kind):
        divergence, by_logits = _by_autograd(zs, zt, options.kind, options.temperature, options.with_gradient)
    soft = (
        (zs / options.temperature, zt / options.temperature)
        if divergence is None and options.temperature != 1
        else None
    )
    log_sums = _normaliser(zs), _normaliser(zt)
    student_logp, teacher_logp = (
        z.gather(-1, tokens[:, None]).sub_(c)[:, 0] for z, c in zip((zs, zt), log_sums, strict=True)
    )
    if divergence is None and soft is None:
        divergence, entropy, teacher_entropy, factor = _sums(zs, zt, *log_sums, options)
        by_logits = zs
    else:
        entropy, teacher_entropy = _entropy(zs, log_sums[0]), _entropy(zt, log_sums[1])
        if soft is not None:
            divergence, _, _, factor = _sums(
                soft[0], soft[1], _normaliser(soft[0]), _normaliser(soft[1]), options
            )
            by_logits, factor = soft[0], factor / options.temperature
    assert divergence is not None
    return TokenStats(divergence, entropy, teacher_entropy, student_logp, teacher_logp), by_logits, factor


def _sums(
    zs: torch.Tensor, zt: torch.Tensor, log_sum_s: torch.Tensor, log_sum_t: torch.Tensor, options: _Options
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Divergence, both entropies, and the factor of the gradient by student logits that `zs` becomes, if one
    is wanted.

    Everything is made of four inner products a row: s.log s, t.log t, s.log m, t.log m (for a KL divergence m
    is the other one).
    """
    kind, beta = options.kind, options.beta
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
        if not options.with_gradient:
            continue
        if kind == "fkl":
            torch.sub(s, t, out=a)
        else:
            a.sub_(log_m).mul_(s)  # s*L
            if kind == "rkl":
                b.copy_(s)
    student_half, teacher_half = s_own - s_cross, t_own - t_cross
    if options.with_gradient and kind != "fkl":
        zs.addcmul_(zt, student_half[:, None], value=-1)  # s*L - s * sum s*L
    share = {"gjs": 1 - beta, "rkl": 1.0, "fkl": 0.0}[str(kind)]
    divergence = share * student_half + {"gjs": beta, "rkl": 0.0, "fkl": 1.0}[str(kind)] * teacher_half
    # A difference of sums may round below zero; no divergence is.
    return divergence.clamp_min_(0), -s_own, -t_own, share or 1.0


def _entropy(z: torch.Tensor, log_sum: torch.Tensor) -> torch.Tensor:
    total = z.new_zeros(z.shape[0])
    for tile in _tiles(z):
        log_p = z[:, tile] - log_sum
        total -= _dot(log_p.exp(), log_p)
    return total


def _by_autograd(
    zs: torch.Tensor, zt: torch.Tensor, function: Divergence, temperature: float, with_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    with torch.enable_grad():
        student = zs.clone().requires_grad_()
        divergence = function(student / temperature, zt.clone() / temperature)
        if not with_gradient:
            return divergence.detach(), None
        (by_logits,) = torch.autograd.grad(divergence.sum(), student)
    return divergence.detach(), by_logits

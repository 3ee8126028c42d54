"""The per-token operation without an [N, V] tensor alive: divergence, entropies, log-probabilities and the gradient in one go.

With a frozen head, row i of the loss depends on row i of the hidden states alone. So the forward pass, chunk of rows by chunk of
rows, makes both logits (two products), the statistics, and dD_i/dh_i (a third product), and keeps only that [N, d] matrix;
backward scales its rows. A chunk's logits stand in two buffers, which the gradient takes over; elementwise work runs over tiles
of the vocabulary that fit the cache. Shapes: N tokens, d width, V vocabulary, n rows of a chunk, v entries of a tile.

With s, t the two distributions and L = log s - log m (gjs) or log s - log t (rkl), the gradient by student logits is
gjs: (1-b) * s * (L - sum s*L)     rkl: s * (L - sum s*L)     fkl: s - t
"""

from collections.abc import Callable
from typing import Any

import torch

from smopd.scoring import plain
from smopd.scoring.stats import Kind, TokenStats, check_arguments

Divergence = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # student logits [n, V], teacher logits [n, V] -> [n]
Needed = Callable[[TokenStats], torch.Tensor]  # statistics of one reply -> which of its tokens will carry loss

CHUNK_BYTES = 200_000_000  # for the two logit buffers of a chunk
TILE_ENTRIES = 1 << 17  # of a chunk's rows at once in elementwise work: half a megabyte, within the second-level cache


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
    """Divergence, entropies and log-probabilities of `tokens` [N] under hidden states [N, d] and a shared head [V, d].

    `kind` may be any function of two chunks of logits; its gradient then comes from autograd inside the chunk. `temperature`
    softens the two distributions of the divergence; entropies and log-probabilities are at temperature 1. `vocab_clip` caps each
    vocabulary entry's contribution before the sum. `chunk_size` bounds the rows computed at once (default: by memory). With
    `lengths` (reply by reply) and `needed`, tokens that will carry no loss cost no gradient product, and get no gradient.
    """
    check_arguments(student_hidden, teacher_hidden, tokens, kind, beta)
    if lm_head_weight.requires_grad and torch.is_grad_enabled() and not callable(kind):
        # Rows are no longer independent: the head's own gradient sums over all of them.
        return plain.token_divergence(
            student_hidden, teacher_hidden, lm_head_weight, tokens, kind, beta, temperature, chunk_size, vocab_clip
        )
    count, vocabulary = student_hidden.shape[0], lm_head_weight.shape[0]
    wide = torch.float64 if student_hidden.dtype == torch.float64 else torch.float32
    size = chunk_size or max(1, CHUNK_BYTES // (2 * vocabulary * wide.itemsize))
    replies = lengths if lengths is not None and needed is not None else [count]
    with_gradient = student_hidden.requires_grad and torch.is_grad_enabled()
    options = _Options(kind, beta, temperature, vocab_clip, needed, _plan(replies, size), wide, with_gradient)
    columns = _Fused.apply(student_hidden, teacher_hidden.detach(), lm_head_weight.detach(), tokens, options)
    return TokenStats(*columns)


Piece = tuple[int, bool]  # rows, and whether they are a whole reply


def _plan(lengths: list[int], size: int) -> list[list[Piece]]:
    """Chunks of whole replies up to `size` rows; a longer reply is cut into chunks of its own."""
    chunks: list[list[Piece]] = []
    room = 0
    for length in filter(None, lengths):
        if length <= room:
            chunks[-1].append((length, True))
            room -= length
        else:
            pieces = [min(size, length - i) for i in range(0, length, size)]
            chunks += [[(piece, len(pieces) == 1)] for piece in pieces]
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
    ) -> None:
        self.kind, self.beta, self.temperature = kind, beta, temperature
        if vocab_clip is not None and not callable(kind):
            cap, name = vocab_clip, kind
            self.kind = lambda s, t: (
                plain.divergence_terms(s.log_softmax(-1), t.log_softmax(-1), name, beta).clamp_max(cap).sum(-1)
            )
        self.needed, self.plan, self.wide, self.with_gradient = needed, plan, wide, with_gradient


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
        buffers = [torch.empty(rows, weight.shape[0], dtype=options.wide, device=student.device) for _ in range(2)]
        first = 0
        for chunk in options.plan:
            part = slice(first, first := first + sum(length for length, _ in chunk))
            zs, zt = (buffer[: part.stop - part.start] for buffer in buffers)
            _logits(student[part], weight, zs)
            _logits(teacher[part], weight, zt)
            stats, by_logits = _score(zs, zt, tokens[part], options)
            for column, name in zip(columns, TokenStats.__dataclass_fields__, strict=True):
                column[part] = getattr(stats, name)
            if gradient is not None and by_logits is not None:
                wanted = _wanted(stats, chunk, options.needed)
                if wanted.all():
                    gradient[part] = by_logits.to(weight.dtype) @ weight
                elif wanted.any():
                    chosen = wanted.nonzero()[:, 0]
                    gradient[part.start + chosen] = by_logits[chosen].to(weight.dtype) @ weight
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


def _wanted(stats: TokenStats, chunk: list[Piece], needed: Needed | None) -> torch.Tensor:
    """Which rows need a gradient; all rows of a reply that was cut, since `needed` judges whole replies."""
    pieces = zip(stats.split([length for length, _ in chunk]), chunk, strict=True)
    return torch.cat(
        [
            needed(reply) if needed and whole else torch.ones_like(reply.divergence, dtype=torch.bool)
            for reply, (_, whole) in pieces
        ]
    )


def _tiles(z: torch.Tensor) -> list[slice]:
    width = max(256, TILE_ENTRIES // max(1, z.shape[0]))
    return [slice(i, min(i + width, z.shape[1])) for i in range(0, z.shape[1], width)]


def _normalise(z: torch.Tensor) -> torch.Tensor:
    """Logits [n, V] to log-probabilities, in place; the sum runs tile by tile."""
    top_n1 = z.amax(-1, keepdim=True)
    total_n1 = torch.zeros_like(top_n1)
    for tile in _tiles(z):
        total_n1 += (z[:, tile] - top_n1).exp_().sum(-1, keepdim=True)
    return z.sub_(top_n1 + total_n1.log_())


def _score(zs: torch.Tensor, zt: torch.Tensor, tokens: torch.Tensor, options: _Options) -> tuple[TokenStats, torch.Tensor | None]:
    """Statistics of a chunk and, where wanted, dD/dz_s, in place of the student's logits. Both buffers are used up."""
    by_logits: torch.Tensor | None = None
    divergence: torch.Tensor | None = None
    if callable(options.kind):
        divergence, by_logits = _by_autograd(zs, zt, options.kind, options.temperature, options.with_gradient)
    soft = (zs / options.temperature, zt / options.temperature) if divergence is None and options.temperature != 1 else None
    _normalise(zs)
    _normalise(zt)
    student_logp, teacher_logp = (z.gather(-1, tokens[:, None])[:, 0].clone() for z in (zs, zt))
    if divergence is None and soft is None:
        divergence, entropy, teacher_entropy = _sums(zs, zt, options)
        by_logits = zs if options.with_gradient else None
    else:
        entropy, teacher_entropy = _entropy(zs), _entropy(zt)
        if soft is not None:
            divergence, _, _ = _sums(_normalise(soft[0]), _normalise(soft[1]), options)
            by_logits = soft[0].div_(options.temperature) if options.with_gradient else None
    assert divergence is not None
    return TokenStats(divergence, entropy, teacher_entropy, student_logp, teacher_logp), by_logits


def _sums(log_s: torch.Tensor, log_t: torch.Tensor, options: _Options) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Divergence and both entropies; `log_s` becomes the gradient by student logits if one is wanted."""
    kind, beta = options.kind, options.beta
    entropy, teacher_entropy, inner, outer = (log_s.new_zeros(log_s.shape[0]) for _ in range(4))
    for tile in _tiles(log_s):
        a, b = log_s[:, tile], log_t[:, tile]
        s, t = a.exp(), b.exp()
        entropy -= (s * a).sum(-1)
        teacher_entropy -= (t * b).sum(-1)
        if kind == "fkl":
            outer += b.sub_(a).mul_(t).sum(-1)
            a.copy_(s).sub_(t)
        else:
            if kind == "gjs":
                # where both underflow to zero the mixture must not become log 0: 0 times infinity is no number
                log_m = torch.lerp(s, t, beta).clamp_min_(torch.finfo(s.dtype).tiny).log_()
                outer += b.sub_(log_m).mul_(t).sum(-1)
            else:
                log_m = b
            inner += a.sub_(log_m).mul_(s).sum(-1)  # s*L, the student's half of the divergence
            if options.with_gradient:
                b.copy_(s)
    if kind == "fkl":
        return outer, entropy, teacher_entropy
    share = 1 - beta if kind == "gjs" else 1.0
    if options.with_gradient:
        log_s.addcmul_(log_t, inner[:, None], value=-1).mul_(share)  # s*L - s * sum s*L
    return (beta * outer if kind == "gjs" else 0.0) + share * inner, entropy, teacher_entropy


def _entropy(log_p: torch.Tensor) -> torch.Tensor:
    total = log_p.new_zeros(log_p.shape[0])
    for tile in _tiles(log_p):
        total -= (log_p[:, tile].exp() * log_p[:, tile]).sum(-1)
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

"""Row losses of a chunk on the CPU: elementwise work over tiles of the vocabulary that fit the cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from smopd.scoring.losses import Divergence, RowLoss, sampled_nll
from smopd.scoring.rows import Chunk, Gradient, Scored, by_autograd, small_divergence

# Of a chunk's rows at once in elementwise work: a quarter megabyte, within the second-level cache.
TILE_ENTRIES = 1 << 16


def score(chunk: Chunk, losses: Sequence[RowLoss], with_gradient: bool) -> Scored:
    """Score a chunk. The last loss works in place of the logits; the ones before it work on copies."""
    # Inputs of float32 keep the bits they have always had.
    small = chunk.hidden[0].dtype.itemsize < chunk.student.dtype.itemsize
    zs, zt, tokens = chunk.student, chunk.teacher, chunk.tokens
    scored: list[tuple[Tensor, Gradient]] = []
    (log_sum_s, _), (log_sum_t, top_t) = _log_sum(zs), _log_sum(zt)
    log_sums = log_sum_s, log_sum_t
    logps = [z.gather(-1, tokens[:, None]).sub_(c)[:, 0] for z, c in zip((zs, zt), log_sums, strict=True)]
    closed = [loss for loss in losses if isinstance(loss, Divergence) and loss.entry_cap is None]
    entropies = []
    if not any(loss.temperature == 1 for loss in closed):  # else such a loss makes them on its way
        entropies = [_entropy(zs, log_sum_s), _entropy(zt, log_sum_t)]
    for number, loss in enumerate(losses):
        final = number == len(losses) - 1
        if isinstance(loss, Divergence) and loss.entry_cap is None:
            if loss.temperature == 1:
                a, b = (zs, zt) if final else (zs.clone(), zt.clone())
                value, *entropies, factor = _divergence(a, b, log_sums, loss, with_gradient, small)
            else:
                a, b = zs / loss.temperature, zt / loss.temperature
                sums = _log_sum(a)[0], _log_sum(b)[0]
                value, _, _, factor = _divergence(a, b, sums, loss, with_gradient, small)
                factor /= loss.temperature
            scored.append((value, (a, factor)))
        elif loss is sampled_nll():
            slope = zs
            if with_gradient:
                slope = (zs if final else zs.clone()).sub_(log_sum_s).exp_()
                slope[torch.arange(len(tokens), device=slope.device), tokens] -= 1
            scored.append((-logps[0], (slope, 1.0)))
        else:
            scored.append(by_autograd(chunk, loss, with_gradient))
    return Scored(scored, [*entropies, *logps, (top_t - log_sum_t)[:, 0]])


def _tiles(z: Tensor) -> list[slice]:
    width = max(256, TILE_ENTRIES // max(1, z.shape[0]))
    return [slice(i, min(i + width, z.shape[1])) for i in range(0, z.shape[1], width)]


def _log_sum(z: Tensor) -> tuple[Tensor, Tensor]:
    """[n, 1] log of the sum of exponentials, tile by tile, and the largest."""
    top_n1 = z.amax(-1, keepdim=True)
    total_n1 = torch.zeros_like(top_n1)
    for tile in _tiles(z):
        total_n1 += (z[:, tile] - top_n1).exp_().sum(-1, keepdim=True)
    return total_n1.log_().add_(top_n1), top_n1


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Row by row, without a product tensor in between."""
    return torch.bmm(a[:, None, :], b[:, :, None])[:, 0, 0]


def _divergence(
    zs: Tensor, zt: Tensor, log_sums: Sequence[Tensor], loss: Divergence, with_gradient: bool, small: bool
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Divergence, both entropies, and the factor of the gradient by student logits that `zs` becomes: all
    made of four inner products a row, s.log s, t.log t, s.log m, t.log m (for a KL divergence m is the other
    one).
    """
    kind, beta = loss.kind, loss.beta
    s_own, t_own, s_cross, t_cross, total = (zs.new_zeros(zs.shape[0]) for _ in range(5))
    for tile in _tiles(zs):
        a, b = zs[:, tile].sub_(log_sums[0]), zt[:, tile].sub_(log_sums[1])  # log s, log t
        if small:
            total += small_divergence(a, b, kind, beta)
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
        if with_gradient and kind == "fkl":
            torch.sub(s, t, out=a)
        elif with_gradient:
            a.sub_(log_m).mul_(s)  # s*L
            if kind == "rkl":
                b.copy_(s)
    student_half, teacher_half = s_own - s_cross, t_own - t_cross
    if with_gradient and kind != "fkl":
        zs.addcmul_(zt, student_half[:, None], value=-1)  # s*L - s * sum s*L
    share = {"gjs": 1 - beta, "rkl": 1.0, "fkl": 0.0}[kind]
    divergence = share * student_half + {"gjs": beta, "rkl": 0.0, "fkl": 1.0}[kind] * teacher_half
    # A difference of sums may round below zero; no divergence is.
    return (total if small else divergence).clamp_min_(0), -s_own, -t_own, share or 1.0


def _entropy(z: Tensor, log_sum: Tensor) -> Tensor:
    total = z.new_zeros(z.shape[0])
    for tile in _tiles(z):
        log_p = z[:, tile] - log_sum
        total -= _dot(log_p.exp(), log_p)
    return total

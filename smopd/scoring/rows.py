"""What is made of one chunk of logits, whoever makes it: tiles.py on the CPU, triton_rows.py on CUDA, `score`
below on other devices. All three score a `Chunk` under some row losses and give a `Scored`.

With s, t the two distributions and L = log s - log m (gjs) or log s - log t (rkl), the gradient by student
logits is gjs: (1-b) * s * (L - sum s*L)     rkl: s * (L - sum s*L)     fkl: s - t     nll: s - onehot(y)
Any other row loss gets its gradient by autograd. Shapes: n rows of a chunk, d width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from smopd.scoring.losses import Divergence, HiddenLoss, Kind, RowLoss, Rows, row_values, sampled_nll

BUFFERS = 10  # of a chunk's size that `score` has alive at once, both logits among them, the gradients not
# dL/dz of the student [n, V] and a factor it still needs; or dL/dh [n, d] and None.
Gradient = tuple[Tensor, float | None]


class Chunk(NamedTuple):
    """The rows that are computed at once. The last loss may write over both logits."""

    student: Tensor  # [n, V] logits in float32 at least
    teacher: Tensor  # [n, V]
    tokens: Tensor  # [n]
    auxiliary: Tensor | None  # [n, K]
    hidden: tuple[Tensor, Tensor]  # [n, d] of student and teacher


class Scored(NamedTuple):
    losses: list[tuple[Tensor, Gradient]]  # of each its values [n], and the gradient where wanted
    shared: list[Tensor]  # [n] both entropies, both log-probabilities, the teacher's highest


# A chunk, the row losses, and whether gradients are wanted.
Score = Callable[[Chunk, Sequence[RowLoss], bool], Scored]


def under_soft_cap(score: Score, softcap: float | None) -> Score:
    """The same for uncapped logits: they are capped in place, and gradients are by what they were."""
    if softcap is None:
        return score

    def capped(chunk: Chunk, losses: Sequence[RowLoss], with_gradient: bool) -> Scored:
        logits = chunk.student, chunk.teacher
        for z in logits:
            z.div_(softcap).tanh_()
        slopes = chunk.student.square().neg_().add_(1) if with_gradient else None
        for z in logits:
            z.mul_(softcap)
        scored = score(chunk, losses, with_gradient)
        for _, (slope, factor) in scored.losses:
            if slopes is not None and factor is not None:
                slope.mul_(slopes)
        return scored

    return capped


def by_autograd(chunk: Chunk, loss: RowLoss, with_gradient: bool) -> tuple[Tensor, Gradient]:
    """Value and gradient of any row loss; the logits themselves stay as they are."""
    of_hidden = isinstance(loss, HiddenLoss)
    with torch.enable_grad():
        if of_hidden:
            moved, teacher = (h.detach().to(chunk.student.dtype) for h in chunk.hidden)
        else:
            moved, teacher = chunk.student.clone(), chunk.teacher.clone()
        value = row_values(loss, Rows(moved.requires_grad_(), teacher, chunk.tokens, chunk.auxiliary))
        if not with_gradient:
            return value.detach(), (chunk.student, 1.0)
        (slope,) = torch.autograd.grad(value.sum(), moved)
    return value.detach(), (slope, None if of_hidden else 1.0)


def small_divergence(log_s_nv: Tensor, log_t_nv: Tensor, kind: Kind, beta: float) -> Tensor:
    """[n] sum of terms none of which is negative, each of second order in log s - log t.

    A divergence of 1e-5 as a difference of entropies of several nats has hardly a digit in float32, and
    sum s * (log s - log t) takes in whatever the two normalisers were rounded by. So with p the larger of
    s(v) and t(v), d = |log s - log t|, q = exp(-d) - 1 and b the other one's share of the mixture the terms
    are
      KL(p||other): p * (d + q)     KL(other||p): -p * ((1 + q) * d + q)
      gjs: -p * (b * (1 + q) * d + (1 + b * q) * log(1 + b * q))
    where the KLs have t - s or s - t added, which sums to zero and takes out the first order.
    """
    gap = log_s_nv - log_t_nv
    student_larger = gap >= 0
    d = gap.abs_()
    q = torch.expm1(-d)
    if kind == "gjs":
        share = torch.full_like(q, 1 - beta).masked_fill_(student_larger, beta)
        mixed = share * q
        terms = share.mul_(q + 1).mul_(d).add_(mixed.log1p().mul_(mixed + 1)).neg_()
    else:
        terms = torch.where(student_larger == (kind == "rkl"), d + q, -((1 + q) * d + q))
    return torch.maximum(log_s_nv, log_t_nv).exp_().mul_(terms).sum(-1)


def score(chunk: Chunk, losses: Sequence[RowLoss], with_gradient: bool) -> Scored:
    """Score a chunk by torch's operations; the logits stay as they are, and the host never waits."""
    log_s, log_t = (z.log_softmax(-1) for z in (chunk.student, chunk.teacher))
    picked_n1 = chunk.tokens[:, None]
    logps = [log_p.gather(-1, picked_n1)[:, 0] for log_p in (log_s, log_t)]
    shared = [entropy(log_s), entropy(log_t), *logps, log_t.amax(-1)]
    scored: list[tuple[Tensor, Gradient]] = []
    for loss in losses:
        if isinstance(loss, Divergence) and loss.entry_cap is None:
            a, b = log_s, log_t
            if loss.temperature != 1:
                a, b = ((z / loss.temperature).log_softmax(-1) for z in (chunk.student, chunk.teacher))
            value = small_divergence(a, b, loss.kind, loss.beta)
            share = 1 - loss.beta if loss.kind == "gjs" else 1.0
            slope = _slope(a, b, loss) if with_gradient else chunk.student
            scored.append((value, (slope, share / loss.temperature)))
        elif loss is sampled_nll():
            slope = chunk.student
            if with_gradient:
                slope = log_s.exp()
                slope.scatter_add_(-1, picked_n1, torch.full_like(picked_n1, -1, dtype=slope.dtype))
            scored.append((-logps[0], (slope, 1.0)))
        else:
            scored.append(by_autograd(chunk, loss, with_gradient))
    return Scored(scored, shared)


def _slope(log_s: Tensor, log_t: Tensor, loss: Divergence) -> Tensor:
    """[n, V] gradient by student logits but for its factor."""
    s = log_s.exp()
    if loss.kind == "fkl":
        return s.sub_(log_t.exp())
    if loss.kind == "rkl":
        log_m = log_t
    else:
        # where both underflow to zero the mixture must not become log 0: 0 times infinity is no number
        log_m = torch.lerp(s, log_t.exp(), loss.beta).clamp_min_(torch.finfo(s.dtype).tiny).log_()
    weighted = (log_s - log_m).mul_(s)
    return weighted.addcmul_(s, weighted.sum(-1, keepdim=True), value=-1)


def entropy(log_p: Tensor) -> Tensor:
    return log_p.exp().mul_(log_p).sum(-1).neg_()

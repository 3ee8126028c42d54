"""Row losses of a chunk on a device without Triton: torch's operations over all of it at once, none of which
depends on the vocabulary or makes the host wait.
"""

from collections.abc import Sequence

import torch

from smopd.scoring.losses import Divergence, RowLoss, sampled_nll
from smopd.scoring.rows import Chunk, Gradient, Scored, by_autograd, small_divergence

BUFFERS = 10  # of a chunk's size that are alive at once, the two logits among them, the gradients not


def score(chunk: Chunk, losses: Sequence[RowLoss], with_gradient: bool) -> Scored:
    """Score a chunk; the logits stay as they are."""
    log_s, log_t = (z.log_softmax(-1) for z in (chunk.student, chunk.teacher))
    picked_n1 = chunk.tokens[:, None]
    logps = [log_p.gather(-1, picked_n1)[:, 0] for log_p in (log_s, log_t)]
    shared = [_entropy(log_s), _entropy(log_t), *logps, log_t.amax(-1)]
    values: list[torch.Tensor] = []
    gradients: list[Gradient] = []
    for loss in losses:
        if isinstance(loss, Divergence) and loss.entry_cap is None:
            a, b = log_s, log_t
            if loss.temperature != 1:
                a, b = ((z / loss.temperature).log_softmax(-1) for z in (chunk.student, chunk.teacher))
            value = small_divergence(a, b, loss.kind, loss.beta)
            share = 1 - loss.beta if loss.kind == "gjs" else 1.0
            slope = _slope(a, b, loss) if with_gradient else chunk.student
            gradient: Gradient = slope, share / loss.temperature
        elif loss is sampled_nll():
            value, slope = -logps[0], chunk.student
            if with_gradient:
                slope = log_s.exp()
                slope.scatter_add_(-1, picked_n1, torch.full_like(picked_n1, -1, dtype=slope.dtype))
            gradient = slope, 1.0
        else:
            value, gradient = by_autograd(chunk, loss, with_gradient)
        values.append(value)
        gradients.append(gradient)
    return Scored(values, shared, gradients if with_gradient else [])


def _slope(log_s: torch.Tensor, log_t: torch.Tensor, loss: Divergence) -> torch.Tensor:
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


def _entropy(log_p: torch.Tensor) -> torch.Tensor:
    return log_p.exp().mul_(log_p).sum(-1).neg_()

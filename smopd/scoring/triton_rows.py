"""Row losses of a chunk on CUDA: one launch a loss for all of its elementwise work.

A program takes one row and goes over it in blocks, three times: normalisers; statistics, the value and the
sum that the gradient needs; the gradient by student logits, which takes the place of the logits. What exp and
log lose near 1 would be all of a small divergence, so there polynomials stand in for them; the terms are
those of `rows.small_divergence`. Everything in float32. Shapes: n rows, V vocabulary.

With w = s*L (gjs, rkl; see rows.py) and W its sum the gradient is w - s*W. Under a cap on the entries' parts,
w is zero where an entry is capped, else s*L (gjs), s*(L + 1) (rkl) or -t (fkl).
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from smopd.scoring.losses import Divergence, HiddenLoss, RowLoss, sampled_nll
from smopd.scoring.rows import Chunk, Gradient, Scored, by_autograd

BLOCK = 2048  # entries of a row at once
WARPS = 8
KINDS = {"nll": 0, "gjs": 1, "rkl": 2, "fkl": 3}


def score(
    chunk: Chunk, losses: Sequence[RowLoss], with_gradient: bool, softcap: float | None = None
) -> Scored:
    """Score uncapped logits under losses with a closed form; the last one overwrites the student's."""
    scored: list[tuple[torch.Tensor, Gradient]] = []
    shared: list[torch.Tensor] = []
    for number, loss in enumerate(losses):
        if isinstance(loss, HiddenLoss):
            scored.append(by_autograd(chunk, loss, with_gradient))
        else:
            last = number == len(losses) - 1
            logits = chunk.student if last or not with_gradient else chunk.student.clone()
            value, *shared = _launch(logits, chunk, loss, with_gradient, softcap)
            scored.append((value, (logits, 1.0)))
    if not shared:
        _, *shared = _launch(chunk.student, chunk, sampled_nll(), False, softcap)
    return Scored(scored, shared)


def _launch(
    student: torch.Tensor, chunk: Chunk, loss: RowLoss, with_gradient: bool, softcap: float | None
) -> list[torch.Tensor]:
    """[n] value, entropies, log-probabilities, the teacher's highest; `student` becomes the gradient."""
    count, vocabulary = student.shape
    columns = torch.empty(6, count, dtype=torch.float32, device=student.device)
    kind, beta, temperature, cap, both_ways = KINDS["nll"], 0.5, 1.0, None, False
    if isinstance(loss, Divergence):
        kind, beta, temperature = KINDS[loss.kind], loss.beta, loss.temperature
        cap, both_ways = loss.entry_cap, loss.both_ways
    with torch.cuda.device_of(student):
        _score_rows[(count,)](
            student, chunk.teacher, chunk.tokens, columns,
            count, vocabulary, student.stride(0), chunk.teacher.stride(0),
            beta, 1 / temperature, 0.0 if cap is None else cap, 1.0 if softcap is None else softcap,
            KIND=kind, GRADIENT=with_gradient, TEMPERED=temperature != 1, SOFT_CAPPED=softcap is not None,
            CAPPED=cap is not None, BOTH_WAYS=both_ways, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    return list(columns.unbind())


@triton.jit
def _expm1_of_negative(d):  # type: ignore[no-untyped-def]
    """exp(-d) - 1 for d >= 0."""
    series = 1 - d * (1.0 / 7)
    series = 1 - d * (1.0 / 6) * series
    series = 1 - d * (1.0 / 5) * series
    series = 1 - d * (1.0 / 4) * series
    series = 1 - d * (1.0 / 3) * series
    series = 1 - d * (1.0 / 2) * series
    return tl.where(d < 0.25, -d * series, tl.exp(-d) - 1)


@triton.jit
def _log1p_of_negative(x):  # type: ignore[no-untyped-def]
    """log(1 + x) for -1 < x <= 0: near zero by the series of 2 * atanh(x / (2 + x))."""
    y = x / (2 + x)
    square = y * y
    series = 1.0 / 3 + square * (1.0 / 5 + square * (1.0 / 7 + square * (1.0 / 9)))
    return tl.where(x > -0.25, 2 * y * (1 + square * series), tl.log(1 + x))


@triton.jit
def _logits(pointer, mask, softcap, SOFT_CAPPED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Logits of a block, soft-capped; finite even where masked or -inf, so that 0 times a logarithm is 0."""
    z = tl.load(pointer, mask=mask, other=float("-inf"))
    if SOFT_CAPPED:
        q = _expm1_of_negative(2 * tl.abs(z) / softcap)
        z = tl.where(mask, tl.where(z < 0, softcap, -softcap) * (q / (2 + q)), float("-inf"))
    return tl.maximum(z, -1e30)


@triton.jit
def _entries(a, b, beta, cap, KIND: tl.constexpr, CAPPED: tl.constexpr, BOTH_WAYS: tl.constexpr):  # type: ignore[no-untyped-def]
    """What every entry adds to the value, w, and s, from the two log-probabilities."""
    s = tl.exp(a)
    t = tl.exp(b)
    larger = a >= b
    p = tl.where(larger, s, t)
    d = tl.abs(a - b)
    q = _expm1_of_negative(d)
    if KIND == 1:  # gjs
        share = tl.where(larger, beta, 1 - beta)
        mixed = share * q
        log_mixed = _log1p_of_negative(mixed)
        value = -p * (share * (1 + q) * d + (1 + mixed) * log_mixed)
        w = -s * tl.where(larger, log_mixed, d + log_mixed)
    else:
        near = p * (d + q)
        far = -p * ((1 + q) * d + q)
        if KIND == 2:  # rkl
            w = s * (a - b)
            value = w if CAPPED else tl.where(larger, near, far)
            w = w + s if CAPPED else w
        else:  # fkl, whose gradient without a cap is s - t
            value = t * (b - a) if CAPPED else tl.where(larger, far, near)
            w = -t if CAPPED else tl.where(larger, -p, p) * q
    if CAPPED:
        counts = value <= cap
        if BOTH_WAYS:
            counts = counts & (value >= -cap)
            value = tl.maximum(value, -cap)
        value = tl.minimum(value, cap)
        w = tl.where(counts, w, 0.0)
    return value, w, s


@triton.jit
def _score_rows(  # type: ignore[no-untyped-def]
    student, teacher, tokens, columns,
    count, vocabulary, student_stride, teacher_stride,
    beta, inverse_temperature, cap, softcap,
    KIND: tl.constexpr, GRADIENT: tl.constexpr, TEMPERED: tl.constexpr, SOFT_CAPPED: tl.constexpr,
    CAPPED: tl.constexpr, BOTH_WAYS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    student += row * student_stride
    teacher += row * teacher_stride
    columns += row
    entry = tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    sampled_s = _logits(student + token, token < vocabulary, softcap, SOFT_CAPPED)
    sampled_t = _logits(teacher + token, token < vocabulary, softcap, SOFT_CAPPED)

    # 1. the largest and the sum of exponentials, each place of the block for itself; what stands at -1e30
    # counts nothing in the end
    top_s = tl.full((BLOCK,), -1e30, tl.float32)
    top_t = top_s
    sum_s = tl.zeros((BLOCK,), tl.float32)
    sum_t = sum_s
    soft_s = sum_s  # at the loss's temperature
    soft_t = sum_s
    for i in range(0, vocabulary, BLOCK):
        mask = i + entry < vocabulary
        a = _logits(student + i + entry, mask, softcap, SOFT_CAPPED)
        b = _logits(teacher + i + entry, mask, softcap, SOFT_CAPPED)
        new_s = tl.maximum(top_s, a)
        new_t = tl.maximum(top_t, b)
        sum_s = sum_s * tl.exp(top_s - new_s) + tl.exp(a - new_s)
        sum_t = sum_t * tl.exp(top_t - new_t) + tl.exp(b - new_t)
        if TEMPERED:
            soft_s = soft_s * tl.exp((top_s - new_s) * inverse_temperature)
            soft_t = soft_t * tl.exp((top_t - new_t) * inverse_temperature)
            soft_s += tl.exp((a - new_s) * inverse_temperature)
            soft_t += tl.exp((b - new_t) * inverse_temperature)
        top_s = new_s
        top_t = new_t
    max_s = tl.max(top_s, 0)
    max_t = tl.max(top_t, 0)
    log_s = tl.log(tl.sum(sum_s * tl.exp(top_s - max_s), 0))
    log_t = tl.log(tl.sum(sum_t * tl.exp(top_t - max_t), 0))
    soft_log_s = log_s
    soft_log_t = log_t
    if TEMPERED:
        soft_log_s = tl.log(tl.sum(soft_s * tl.exp((top_s - max_s) * inverse_temperature), 0))
        soft_log_t = tl.log(tl.sum(soft_t * tl.exp((top_t - max_t) * inverse_temperature), 0))

    # 2. statistics and the value
    entropy_s = tl.zeros((BLOCK,), tl.float32)
    entropy_t = entropy_s
    values = entropy_s
    weights = entropy_s
    for i in range(0, vocabulary, BLOCK):
        mask = i + entry < vocabulary
        a = _logits(student + i + entry, mask, softcap, SOFT_CAPPED) - max_s
        b = _logits(teacher + i + entry, mask, softcap, SOFT_CAPPED) - max_t
        entropy_s -= tl.exp(a - log_s) * (a - log_s)
        entropy_t -= tl.exp(b - log_t) * (b - log_t)
        if KIND > 0:
            a = a * inverse_temperature - soft_log_s
            b = b * inverse_temperature - soft_log_t
            value, w, s = _entries(a, b, beta, cap, KIND, CAPPED, BOTH_WAYS)
            values += value
            weights += w
    sampled_s = sampled_s - max_s - log_s
    total = -sampled_s
    if KIND > 0:
        total = tl.sum(values, 0)
        total = tl.where(total > 1e25, float("inf"), total)  # a probability of zero where there must be none
        if not CAPPED:
            total = tl.maximum(total, 0.0)
    tl.store(columns, total)
    tl.store(columns + count, tl.sum(entropy_s, 0))
    tl.store(columns + 2 * count, tl.sum(entropy_t, 0))
    tl.store(columns + 3 * count, sampled_s)
    tl.store(columns + 4 * count, sampled_t - max_t - log_t)
    tl.store(columns + 5 * count, -log_t)

    # 3. the gradient
    if GRADIENT:
        share = tl.sum(weights, 0)
        if KIND == 3 and not CAPPED:
            share = 0.0
        factor = inverse_temperature
        if KIND == 1:
            factor = (1 - beta) * inverse_temperature
        for i in range(0, vocabulary, BLOCK):
            mask = i + entry < vocabulary
            z = _logits(student + i + entry, mask, softcap, SOFT_CAPPED)
            if KIND == 0:
                slope = tl.exp(z - max_s - log_s) - tl.where(i + entry == token, 1.0, 0.0)
            else:
                a = z - max_s
                b = _logits(teacher + i + entry, mask, softcap, SOFT_CAPPED) - max_t
                a = a * inverse_temperature - soft_log_s
                b = b * inverse_temperature - soft_log_t
                value, w, s = _entries(a, b, beta, cap, KIND, CAPPED, BOTH_WAYS)
                slope = factor * (w - s * share)
            if SOFT_CAPPED:
                raw = tl.load(student + i + entry, mask=mask, other=0.0)
                q = _expm1_of_negative(2 * tl.abs(raw) / softcap)
                slope = slope * (4 * (1 + q) / ((2 + q) * (2 + q)))  # 1 - tanh^2
            tl.store(student + i + entry, slope, mask=mask)

"""Soft-capped logits, cap * tanh(z / cap), fused and plain, against formulas written out in numpy float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain_path import KINDS, N, V, assert_paths_agree, both, draw, plain_divergence

from smopd.scoring import Decision, chunks, gjs, kernel
from smopd.scoring import token_divergence as fused
from smopd.scoring.plain import CappedHead


def reference(kind, beta, zs, zt, cap, temperature):
    def log_softmax(z):
        z = cap * np.tanh(z / cap) / temperature
        return (
            z - np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1, keepdims=True)) - z.max(-1, keepdims=True)
        )

    a, b = log_softmax(zs), log_softmax(zt)
    s, t = np.exp(a), np.exp(b)
    log_m = {"rkl": b, "fkl": a}.get(kind, np.log(beta * t + (1 - beta) * s))
    halves = (s * (a - log_m)).sum(-1), (t * (b - log_m)).sum(-1)
    value = {"rkl": halves[0], "fkl": halves[1]}.get(kind, (1 - beta) * halves[0] + beta * halves[1])
    return value, -(s * a).sum(-1), -(t * b).sum(-1), a, b


@both
@pytest.mark.parametrize(("kind", "beta"), KINDS)
@pytest.mark.parametrize(("cap", "temperature"), [(1.5, 1.0), (30.0, 1.0), (1.5, 0.7)])
def test_values_equal_the_float64_reference(token_divergence, kind, beta, cap, temperature):
    student, teacher, head, tokens = draw(1, cap=cap)
    zs, zt = ((h @ head.T).numpy() for h in (student, teacher))
    stats = token_divergence(student, teacher, head, tokens, kind, beta, temperature, chunk_size=4)
    np.testing.assert_allclose(
        stats.divergence, reference(kind, beta, zs, zt, cap, temperature)[0], rtol=1e-10
    )
    _, entropy, teacher_entropy, a, b = reference(kind, beta, zs, zt, cap, 1.0)
    picked = np.arange(N), tokens.numpy()
    expected = {
        "entropy": entropy,
        "teacher_entropy": teacher_entropy,
        "student_logp": a[picked],
        "teacher_logp": b[picked],
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(stats, name), value, rtol=1e-10)


@both
@pytest.mark.parametrize(("kind", "beta"), KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradient_is_the_derivative_of_the_value(token_divergence, kind, beta, temperature):
    student, teacher, head, tokens = draw(2, cap=1.5)
    student.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h: token_divergence(h, teacher, head, tokens, kind, beta, temperature).divergence, (student,)
    )


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 20),
    cap=st.floats(0.3, 50),
    which=st.sampled_from(KINDS),
    temperature=st.sampled_from([1.0, 0.6]),
    chunk=st.one_of(st.none(), st.integers(1, 25)),
    vocab_clip=st.sampled_from([None, 0.05]),
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_fused_equals_plain_in_value_and_gradient(
    dtype, tolerance, seed, n, cap, which, temperature, chunk, vocab_clip
):
    rows = draw(seed, 1.0, n, cap, dtype)
    assert_paths_agree(*rows, *which, temperature, chunk, vocab_clip, tolerance=tolerance)


def test_tokens_without_loss_get_no_gradient_and_a_function_of_logits_sees_capped_ones():
    student, teacher, head, tokens = draw(3, cap=1.5)
    whole, part = student.clone().requires_grad_(), student.clone().requires_grad_()
    fused(whole, teacher, head, tokens).divergence.sum().backward()

    def decide(number, stats):
        high = stats[0].entropy > stats[0].entropy.mean()
        return [Decision(high.double(), high)]

    (stats,) = kernel.token_stats(part, teacher, head, tokens, [gjs(0.5)], None, [N], decide)
    stats.divergence.sum().backward()
    wanted = part.grad.abs().amax(-1) > 0
    assert 0 < wanted.sum() < N
    torch.testing.assert_close(part.grad[wanted], whole.grad[wanted])
    largest = []
    fused(
        student,
        teacher,
        head,
        tokens,
        kind=lambda s, t: largest.append(s.detach().abs().max()) or (s - t).square().sum(-1),
    )
    assert largest[0] < 1.5 < float((student @ head.T).abs().max())


def test_a_trained_head_keeps_its_cap():
    student, teacher, head, tokens = draw(4, cap=1.5)
    weight = head.detach().requires_grad_()
    trained = CappedHead.of(weight, 1.5)
    assert trained.requires_grad
    expected = plain_divergence(student, teacher, head, tokens).divergence
    torch.testing.assert_close(fused(student, teacher, trained, tokens).divergence.detach(), expected)


def test_the_buffer_of_slopes_counts_in_the_size_of_a_chunk(monkeypatch):
    student, teacher, head, tokens = draw(5, cap=1.5)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 6 * V * 8)
    sizes = []
    original = kernel.chunks_of
    monkeypatch.setattr(
        kernel, "chunks_of", lambda lengths, size: sizes.append(size) or original(lengths, size)
    )
    fused(student, teacher, head, tokens)
    fused(student, teacher, head.detach(), tokens)
    assert sizes == [2, 3]

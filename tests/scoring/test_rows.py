"""Whole chunks at once, as on a device without Triton, and the sum that keeps small divergences."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plain_path import KINDS, SHARED, assert_paths_agree, draw

from smopd.scoring import kernel, plain, rows
from smopd.scoring import losses as row_losses
from smopd.scoring.losses import divergence_terms

CLOSED = [
    row_losses.sampled_nll(), row_losses.hidden_mse(), row_losses.gjs(0.3), row_losses.reverse_kl(),
    row_losses.forward_kl(temperature=1.4), row_losses.gjs(0.5, entry_cap=0.05), row_losses.drkl(0.5),
]  # fmt: skip


@pytest.fixture(autouse=True)
def whole_chunks(monkeypatch):
    """The choice for a device, on the CPU."""
    chosen = kernel.scorer_of

    def scorer_of(device, *others):
        score, buffers = chosen(torch.device("meta"), *others)
        assert buffers > rows.BUFFERS
        return score, buffers

    monkeypatch.setattr(kernel, "scorer_of", scorer_of)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 20),
    cap=st.sampled_from([None, 0.5, 3.0, 30.0]),
    which=st.sampled_from(KINDS),
    temperature=st.sampled_from([1.0, 0.6, 1.7]),
    chunk=st.one_of(st.none(), st.integers(1, 25)),
    vocab_clip=st.sampled_from([None, 0.05]),
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_equals_plain_in_value_and_gradient(
    dtype, tolerance, seed, n, cap, which, temperature, chunk, vocab_clip
):
    inputs = draw(seed, 1.0, n, cap, dtype)
    assert_paths_agree(*inputs, *which, temperature, chunk, vocab_clip, tolerance=tolerance)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    chosen=st.lists(st.sampled_from(CLOSED), min_size=1, max_size=3),
    softcap=st.sampled_from([None, 3.0]),
)
def test_several_losses_in_one_pass_equal_the_plain_path(seed, chosen, softcap):
    student, teacher, head, tokens = draw(seed, 1.0, 9, softcap)
    results = []
    for path in (kernel, plain):
        hidden = student.clone().requires_grad_()
        stats = path.token_stats(hidden, teacher, head, tokens, chosen, 4)
        sum((s.divergence * (k + 1)).sum() for k, s in enumerate(stats)).backward()
        shared = [getattr(stats[-1], name) for name in (*SHARED, "teacher_top")]
        results.append([*(s.divergence.detach() for s in stats), *shared, hidden.grad])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("kind", "beta"), KINDS)
@pytest.mark.parametrize("distance", [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0])
def test_small_divergences_keep_their_digits(kind, beta, distance):
    """In float32, from logits of float32: at the smallest distance a KL is 5e-9."""
    g = torch.Generator().manual_seed(0)
    student = 3 * torch.randn(8, 500, generator=g)
    teacher = student + distance * torch.randn(8, 500, generator=g)
    divergences = rows.small_divergence(student.log_softmax(-1), teacher.log_softmax(-1), kind, beta)
    logs = [z.double().log_softmax(-1) for z in (student, teacher)]
    exact = divergence_terms(*logs, kind, beta).sum(-1)
    torch.testing.assert_close(divergences.double(), exact, rtol=max(1e-5, 1e-6 / distance), atol=0)
    again = rows.small_divergence(*logs, kind, beta)
    torch.testing.assert_close(again, exact, rtol=1e-5, atol=0)

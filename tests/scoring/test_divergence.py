"""token_divergence, fused and plain, against formulas written out in numpy float64, and the properties a
divergence must have.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain_path import KINDS, SHARED, N, assert_paths_agree, both, draw, plain_divergence

from smopd.scoring import Decision, kernel, plain
from smopd.scoring import losses as row_losses
from smopd.scoring import token_divergence as fused
from smopd.scoring.chunks import chunks_of
from smopd.scoring.losses import divergence_terms


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(kind: str, beta: float, s: np.ndarray, t: np.ndarray) -> np.ndarray:
    def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return (p * np.log(p / q)).sum(-1)

    if kind == "rkl":
        return kl(s, t)
    if kind == "fkl":
        return kl(t, s)
    m = beta * t + (1 - beta) * s
    return beta * kl(t, m) + (1 - beta) * kl(s, m)


@both
@pytest.mark.parametrize(
    ("kind", "beta"), [("gjs", 0.5), ("gjs", 0.1), ("gjs", 0.9), ("rkl", 1.0), ("fkl", 0.0)]
)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_values_equal_the_float64_reference(token_divergence, kind, beta, temperature):
    student, teacher, head, tokens = draw(1)
    stats = token_divergence(student, teacher, head, tokens, kind, beta, temperature)
    zs, zt = (student @ head.T).numpy(), (teacher @ head.T).numpy()
    s, t = softmax(zs / temperature), softmax(zt / temperature)
    np.testing.assert_allclose(stats.divergence, reference(kind, beta, s, t), rtol=1e-11)
    s, t = softmax(zs), softmax(zt)  # the statistics are at temperature 1
    np.testing.assert_allclose(stats.entropy, -(s * np.log(s)).sum(-1), rtol=1e-11)
    np.testing.assert_allclose(stats.teacher_entropy, -(t * np.log(t)).sum(-1), rtol=1e-11)
    picked = np.arange(N), tokens.numpy()
    np.testing.assert_allclose(stats.student_logp, np.log(s[picked]), rtol=1e-11)
    np.testing.assert_allclose(stats.teacher_logp, np.log(t[picked]), rtol=1e-11)


@both
@pytest.mark.parametrize(("kind", "beta"), [("gjs", 0.5), ("gjs", 0.3), ("rkl", 1.0), ("fkl", 0.0)])
def test_gradient_is_the_derivative_of_the_value(token_divergence, kind, beta):
    student, teacher, head, tokens = draw(2)
    student.requires_grad_()

    def value(h: torch.Tensor) -> torch.Tensor:
        return token_divergence(h, teacher, head, tokens, kind, beta).divergence

    assert torch.autograd.gradcheck(value, (student,))


@both
def test_only_the_divergence_and_only_the_student_carry_gradient(token_divergence):
    student, teacher, head, tokens = draw(3)
    for tensor in (student, teacher):
        tensor.requires_grad_()
    stats = token_divergence(student, teacher, head, tokens)
    for name in ("entropy", "teacher_entropy", "student_logp", "teacher_logp"):
        assert not getattr(stats, name).requires_grad, name
    stats.divergence.sum().backward()
    assert student.grad is not None
    assert teacher.grad is None


@both
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 30), beta=st.floats(0.01, 0.99))
def test_gjs_is_bounded_and_divergences_are_never_negative(token_divergence, seed, scale, beta):
    student, teacher, head, tokens = draw(seed, scale)
    gjs = token_divergence(student, teacher, head, tokens, "gjs", beta).divergence
    bound = -beta * math.log(beta) - (1 - beta) * math.log(1 - beta)  # entropy of the coin, ln 2 at one half
    assert (gjs >= -1e-12).all()
    assert (gjs <= bound + 1e-9).all()
    for kind in ("rkl", "fkl"):
        assert (token_divergence(student, teacher, head, tokens, kind).divergence >= -1e-12).all()


@both
def test_a_saturated_pair_reaches_ln_2(token_divergence):
    head = torch.eye(2, dtype=torch.float64) * 100
    student, teacher = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    assert token_divergence(student, teacher, head, torch.tensor([0])).divergence.item() == pytest.approx(
        math.log(2), rel=1e-9
    )


@both
@pytest.mark.parametrize("kind", ["gjs", "rkl", "fkl"])
def test_equal_distributions_have_no_divergence_and_no_gradient(token_divergence, kind):
    student, _, head, tokens = draw(4)
    moved = student.clone().requires_grad_()
    stats = token_divergence(moved, student, head, tokens, kind)
    assert stats.divergence.abs().max() < 1e-14
    stats.divergence.sum().backward()
    assert moved.grad.abs().max() < 1e-12


@both
def test_gjs_at_one_half_is_symmetric_and_kls_swap(token_divergence):
    student, teacher, head, tokens = draw(5)
    there = token_divergence(student, teacher, head, tokens).divergence
    back = token_divergence(teacher, student, head, tokens).divergence
    torch.testing.assert_close(there, back, rtol=1e-12, atol=1e-14)
    rkl = token_divergence(student, teacher, head, tokens, "rkl").divergence
    fkl = token_divergence(teacher, student, head, tokens, "fkl").divergence
    torch.testing.assert_close(rkl, fkl, rtol=1e-12, atol=1e-14)


@both
@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_chunks_change_nothing(token_divergence, chunk):
    student, teacher, head, tokens = draw(6)
    whole = token_divergence(student, teacher, head, tokens)
    cut = token_divergence(student, teacher, head, tokens, chunk_size=chunk)
    for name in whole.__dataclass_fields__:
        torch.testing.assert_close(getattr(whole, name), getattr(cut, name), rtol=0, atol=1e-14)


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_inputs_give_float32_logits(token_divergence, dtype):
    """Statistics are those of the rounded inputs: what is made of them is rounded no further."""
    *rows, tokens = draw(7)
    low = [x.to(dtype) for x in rows]
    stats = token_divergence(*low, tokens)
    exact = token_divergence(*(x.double() for x in low), tokens)
    for name in ("divergence", *SHARED):
        assert getattr(stats, name).dtype == torch.float32
        torch.testing.assert_close(getattr(stats, name).double(), getattr(exact, name), rtol=1e-5, atol=1e-6)


@both
def test_float32_is_close_to_float64_even_when_nearly_saturated(token_divergence):
    student, teacher, head, tokens = draw(8, scale=20)
    wide = token_divergence(student, teacher, head, tokens, "rkl")
    narrow = token_divergence(student.float(), teacher.float(), head.float(), tokens, "rkl")
    torch.testing.assert_close(narrow.divergence.double(), wide.divergence, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(narrow.divergence).all()


@both
def test_the_vocabulary_clip_caps_each_entry_and_may_go_negative(token_divergence):
    student, teacher, head, tokens = draw(9, scale=3)
    zs, zt = (student @ head.T).numpy(), (teacher @ head.T).numpy()
    s, t = softmax(zs), softmax(zt)
    terms = np.minimum(s * np.log(s / t), 0.05).sum(-1)
    clipped = token_divergence(student, teacher, head, tokens, "rkl", vocab_clip=0.05).divergence
    np.testing.assert_allclose(clipped, terms, rtol=1e-10)
    assert (clipped < 0).any()


@both
def test_no_tokens_give_empty_statistics(token_divergence):
    student, teacher, head, _ = draw(10, n=0)
    stats = token_divergence(student, teacher, head, torch.zeros(0, dtype=torch.long))
    assert stats.divergence.shape == stats.entropy.shape == (0,)


@both
def test_mistakes_are_refused(token_divergence):
    student, teacher, head, tokens = draw(11)
    with pytest.raises(ValueError, match="one row a token"):
        token_divergence(student, teacher[:-1], head, tokens)
    with pytest.raises(ValueError, match="unknown divergence"):
        token_divergence(student, teacher, head, tokens, kind="tv")
    with pytest.raises(ValueError, match="0 < beta < 1"):
        token_divergence(student, teacher, head, tokens, beta=1.0)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    scale=st.floats(0.05, 20),
    which=st.sampled_from(KINDS),
    temperature=st.sampled_from([1.0, 0.6, 1.7]),
    chunk=st.one_of(st.none(), st.integers(1, 50)),
    vocab_clip=st.sampled_from([None, 0.05]),
)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_fused_equals_plain_in_value_and_gradient(
    dtype, tolerance, seed, n, scale, which, temperature, chunk, vocab_clip
):
    student, teacher, head, tokens = draw(seed, scale, n)
    rows = (student.to(dtype), teacher.to(dtype), (head / scale).to(dtype), tokens)
    assert_paths_agree(*rows, *which, temperature, chunk, vocab_clip, tolerance=tolerance, scale=scale)


def test_any_function_of_two_chunks_of_logits():
    """Total variation, which nobody wrote a gradient for: autograd inside the chunk gives it."""

    def total_variation(zs, zt):
        return 0.5 * (zs.softmax(-1) - zt.softmax(-1)).abs().sum(-1)

    student, teacher, head, tokens = draw(12, n=9)
    student.requires_grad_()
    stats = fused(student, teacher, head, tokens, kind=total_variation, chunk_size=4)
    expected = total_variation(student @ head.T, teacher @ head.T)
    torch.testing.assert_close(stats.divergence, expected.detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(stats.entropy, plain_divergence(student, teacher, head, tokens).entropy)
    (ours,) = torch.autograd.grad(stats.divergence.sum(), student)
    (theirs,) = torch.autograd.grad(expected.sum(), student)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_the_vocabulary_clip_goes_through_the_same_terms():
    student, teacher, head, tokens = draw(13, scale=3)
    terms = divergence_terms(
        (student @ head.T).log_softmax(-1), (teacher @ head.T).log_softmax(-1), "gjs", 0.5
    )
    torch.testing.assert_close(
        fused(student, teacher, head, tokens, vocab_clip=0.02).divergence, terms.clamp_max(0.02).sum(-1)
    )


@pytest.mark.parametrize("chunk", [None, 4, 7])
@pytest.mark.parametrize("path", [kernel, plain], ids=["fused", "plain"])
def test_one_decision_a_reply_is_what_kernel_and_loss_read(path, chunk):
    """`decide` runs once for every reply, sees all of it, and its weights come back as they were given."""
    student, teacher, head, tokens = draw(14, n=12)
    lengths, asked = [5, 0, 3, 4], []
    losses = [row_losses.gjs(0.5), row_losses.reverse_kl()]

    def decide(number, stats):
        assert [len(s.divergence) for s in stats] == [lengths[number]] * 2
        assert not any(s.divergence.requires_grad for s in stats)
        asked.append(number)
        high = stats[0].entropy > stats[0].entropy.median()
        low = stats[1].divergence <= stats[1].divergence.median()
        return [Decision(2.0 * high, high), Decision(low.double(), low)]

    whole, part = student.clone().requires_grad_(), student.clone().requires_grad_()
    everything = path.token_stats(whole, teacher, head, tokens, losses)
    stats = path.token_stats(part, teacher, head, tokens, losses, chunk, lengths, decide)
    assert asked == [0, 2, 3]
    for column, all_of_it, factor in zip(stats, everything, (2.0, 1.0), strict=True):
        torch.testing.assert_close(column.divergence, all_of_it.divergence)
        for name in SHARED:
            torch.testing.assert_close(getattr(column, name), getattr(all_of_it, name))
        ranks = column.entropy if factor == 2 else -column.divergence.detach()
        expected = torch.cat(
            [(r > r.median()) if factor == 2 else (r >= -(-r).median()) for r in ranks.split([5, 3, 4])]
        )
        assert torch.equal(column.weight, factor * expected.double())
        (ours,) = torch.autograd.grad((column.divergence * column.weight).sum(), part, retain_graph=True)
        (theirs,) = torch.autograd.grad(
            (all_of_it.divergence * column.weight).sum(), whole, retain_graph=True
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    if (
        path is kernel and chunk is None
    ):  # rows that cannot move the loss have no gradient, whatever stands above them
        (ones,) = torch.autograd.grad(stats[0].divergence.sum(), part)
        assert ones[stats[0].weight == 0].abs().max() == 0


@given(st.lists(st.integers(0, 12), max_size=10), st.integers(1, 9))
def test_chunks_hold_every_row_once_and_replies_whole_where_they_fit(lengths, size):
    chunks = chunks_of(lengths, size)
    assert all(0 < sum(piece.rows for piece in chunk) <= size for chunk in chunks)
    pieces = [piece for chunk in chunks for piece in chunk]
    assert sum(piece.rows for piece in pieces) == sum(lengths)
    assert [(p.rows, p.reply) for p in pieces if p.rows == p.length] == [
        (n, i) for i, n in enumerate(lengths) if 0 < n <= size
    ]
    assert [p.reply for p in pieces if p.last] == [i for i, n in enumerate(lengths) if n]


def test_a_trained_head_gets_its_gradient_too():
    student, teacher, head, tokens = draw(15)
    head.requires_grad_()
    fused(student, teacher, head, tokens).divergence.sum().backward()
    ours, head.grad = head.grad, None
    plain_divergence(student, teacher, head, tokens).divergence.sum().backward()
    torch.testing.assert_close(ours, head.grad)


def test_without_gradient_no_third_product_is_made(monkeypatch):
    student, teacher, head, tokens = draw(16)
    seen = []
    original = kernel.tiles.score
    monkeypatch.setattr(kernel.tiles, "score", lambda *a: seen.append(a[-1]) or original(*a))
    fused(student, teacher, head, tokens)
    with torch.no_grad():
        fused(student.requires_grad_(), teacher, head, tokens)
    assert seen == [False, False]


def test_underflow_in_both_distributions_is_no_nan():
    head = torch.tensor([[0.0], [300.0], [-300.0]])
    one = torch.ones(1, 1).requires_grad_()
    for kind, beta in KINDS:
        stats = fused(one, torch.ones(1, 1), head, torch.tensor([1]), kind, beta)
        stats.divergence.sum().backward()
        assert stats.divergence.item() == pytest.approx(0, abs=1e-6)
        assert torch.isfinite(one.grad).all()


def nll_reference(zs, zt, y):
    return -np.log(softmax(zs)[np.arange(len(y)), y])


def top_k_reference(k, renormalise):
    def value(zs, zt, y):
        s, t = softmax(zs), softmax(zt)
        total = []
        for row in range(len(y)):
            best = np.argsort(-t[row])[:k]
            p = t[row, best] / (t[row, best].sum() if renormalise else 1)
            total.append((p * np.log(p / s[row, best])).sum())
        return np.array(total)

    return value


def drkl_reference(gamma):
    def value(zs, zt, y):
        s, t = softmax(zs), softmax(zt)
        total = []
        for row, token in enumerate(y):
            a, b = s[row, token], t[row, token]
            p, q = np.delete(s[row], token) / (1 - a), np.delete(t[row], token) / (1 - b)
            binary = a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))
            total.append(binary + gamma * (p * np.log(p / q)).sum())
        return np.array(total)

    return value


@row_losses.row_loss
def squared_gap(rows):
    """Sees the sampled token, and has no closed form."""
    s, t = (
        z.log_softmax(-1).gather(-1, rows.tokens[:, None])[:, 0]
        for z in (rows.student, rows.teacher.detach())
    )
    return (s - t).square()


def squared_gap_reference(zs, zt, y):
    return (nll_reference(zs, zt, y) - nll_reference(zt, zs, y)) ** 2


def grouped_gjs(k: int, beta: float, s: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Over the k likeliest of s, and one entry for all others."""
    order = np.argsort(-s, -1)
    ordered = (np.take_along_axis(p, order, -1) for p in (s, t))
    return reference("gjs", beta, *(np.c_[p[:, :k], p[:, k:].sum(-1)] for p in ordered))


ROW_LOSSES = [
    (row_losses.sampled_nll(), nll_reference),
    (row_losses.top_k_forward_kl(4), top_k_reference(4, False)),
    (row_losses.top_k_forward_kl(4, renormalise=True), top_k_reference(4, True)),
    (row_losses.top_k_forward_kl(99), lambda zs, zt, y: reference("fkl", 0, softmax(zs), softmax(zt))),
    (row_losses.top_k_gjs(4, 0.3), lambda zs, zt, y: grouped_gjs(4, 0.3, softmax(zs), softmax(zt))),
    (row_losses.top_k_gjs(99, 0.3), lambda zs, zt, y: reference("gjs", 0.3, softmax(zs), softmax(zt))),
    (row_losses.drkl(0.5), drkl_reference(0.5)),
    (row_losses.drkl(1.0), drkl_reference(1.0)),
    (squared_gap, squared_gap_reference),
]


@pytest.mark.parametrize(("loss", "formula"), ROW_LOSSES, ids=lambda x: getattr(x, "name", ""))
@pytest.mark.parametrize("path", [kernel, plain], ids=["fused", "plain"])
def test_row_losses_equal_numpy_and_their_gradient_is_the_derivative(path, loss, formula):
    student, teacher, head, tokens = draw(21, scale=1.3)
    student.requires_grad_()
    (stats,) = path.token_stats(student, teacher, head, tokens, [loss], 2)
    logits = [(h.detach() @ head.T).numpy() for h in (student, teacher)]
    np.testing.assert_allclose(
        stats.divergence.detach().numpy(), formula(*logits, tokens.numpy()), rtol=1e-11
    )
    assert torch.autograd.gradcheck(
        lambda h: path.token_stats(h, teacher, head, tokens, [loss], 2)[0].divergence, (student,), atol=1e-7
    )


EVERY_LOSS = [loss for loss, _ in ROW_LOSSES] + [
    row_losses.gjs(0.3), row_losses.reverse_kl(), row_losses.forward_kl(temperature=1.4),
    row_losses.gjs(0.5, entry_cap=0.05),
]  # fmt: skip


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 15),
    chosen=st.lists(st.sampled_from(EVERY_LOSS), min_size=1, max_size=3),
    chunk=st.one_of(st.none(), st.integers(1, 16)),
    softcap=st.sampled_from([None, 3.0]),
)
def test_several_losses_in_one_pass_equal_the_plain_path(seed, n, chosen, chunk, softcap):
    student, teacher, head, tokens = draw(seed, 1.0, n, softcap)
    results = []
    for path in (kernel, plain):
        hidden = student.clone().requires_grad_()
        stats = path.token_stats(hidden, teacher, head, tokens, chosen, chunk)
        weights = torch.arange(1, n + 1, dtype=torch.float64)
        sum((s.divergence * weights * (k + 1)).sum() for k, s in enumerate(stats)).backward()
        shared = [getattr(stats[-1], name) for name in SHARED]
        results.append([*(s.divergence.detach() for s in stats), *shared, hidden.grad / n])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)

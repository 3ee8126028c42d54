"""rollout_loss against a loop in plain Python, and what it must not depend on."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.played import random_stats

from smopd.objective import rollout_loss
from smopd.scoring import TokenStats


def part(loss, name):
    return loss.terms[name].value


def middle_kept(loss):
    """(tokens of middle replies that carry loss, all of them)"""
    masks = loss.terms["middle"].kept()
    return sum(int(mask.sum()) for mask in masks), sum(map(len, masks))


def weights_of(loss):
    return loss.terms["middle"].turn_weights


def by_hand(middle, answer, full, correct, keep, eta, clip):
    """The published objective with lists and loops."""
    eligible = [m for m in middle if len(m.divergence)]
    deltas = [
        max(
            sum(abs(a - b) for a, b in zip(m.student_logp.tolist(), m.teacher_logp.tolist(), strict=True))
            / len(m.divergence),
            1e-6,
        )
        for m in eligible
    ]
    ordered = sorted(deltas)
    k = len(ordered)
    median = 0.0 if not k else (ordered[(k - 1) // 2] + ordered[k // 2]) / 2
    total = 0.0
    for m, delta in zip(eligible, deltas, strict=True):
        weight = min(max(median / (median + delta) * (1 + eta * (1 - 2 * correct)), 0), 1)
        entropy = sorted(m.entropy.tolist())
        rank = (1 - keep) * (len(entropy) - 1)
        low, high = math.floor(rank + 1e-12), math.ceil(rank - 1e-12)
        threshold = entropy[low] + (rank - low) * (entropy[high] - entropy[low])
        kept = [
            min(d, clip)
            for d, h in zip(m.divergence.tolist(), m.entropy.tolist(), strict=True)
            if h >= threshold - 1e-12
        ]
        total += weight * sum(kept) / len(kept) / k
    for part in (answer, full):
        if part is not None and len(part.divergence):
            total += sum(min(d, clip) for d in part.divergence.tolist()) / len(part.divergence)
    return total


@given(
    lengths=st.lists(st.integers(0, 12), max_size=6),
    answer=st.integers(0, 10),
    full=st.one_of(st.none(), st.integers(0, 10)),
    correct=st.booleans(),
    keep=st.sampled_from([1.0, 0.8, 0.5]),
    eta=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 10**6),
)
def test_equals_the_loop(lengths, answer, full, correct, keep, eta, seed):
    middle = [random_stats(n, seed + i) for i, n in enumerate(lengths)]
    answer, full = random_stats(answer, seed + 100), None if full is None else random_stats(full, seed + 200)
    loss = rollout_loss(middle, answer, full, correct=correct, keep=keep, eta=eta, clip=0.4)
    assert loss.total.item() == pytest.approx(
        by_hand(middle, answer, full, correct, keep, eta, 0.4), abs=1e-12
    )
    assert loss.total.item() == pytest.approx(
        sum(part(loss, name) for name in ("middle", "answer", "full")).item(), abs=1e-12
    )


def test_the_mask_touches_middle_turns_only():
    middle, answer, full = [random_stats(20, 1), random_stats(9, 2)], random_stats(15, 3), random_stats(11, 4)
    on, off = (rollout_loss(middle, answer, full, keep=k) for k in (0.5, 1.0))
    assert part(on, "middle") != part(off, "middle")
    assert part(on, "answer") == part(off, "answer")
    assert part(on, "full") == part(off, "full")
    assert middle_kept(off) == (29, 29)
    assert middle_kept(on)[0] < 29


def test_weights_are_over_all_tokens_not_the_kept_ones():
    middle = [random_stats(20, 1), random_stats(9, 2), random_stats(14, 3)]
    on, off = (rollout_loss(middle, None, keep=k) for k in (0.3, 1.0))
    assert torch.equal(weights_of(on), weights_of(off))


def test_a_clipped_position_has_no_gradient_and_is_counted():
    answer = random_stats(6, 5)
    with torch.no_grad():
        answer.divergence[2] = 0.9
    loss = rollout_loss([], answer, clip=0.5)
    loss.total.backward()
    expected = [0.0 if d > 0.5 else 1 / 6 for d in answer.divergence.tolist()]
    assert answer.divergence.grad.tolist() == pytest.approx(expected)
    (over,), (kept,) = loss.terms["answer"].over, loss.terms["answer"].kept()
    assert kept.tolist() == [True] * 6
    assert over.tolist() == [d > 0.5 for d in answer.divergence.tolist()]


def test_gradient_of_a_middle_token_is_weight_over_turns_and_kept_tokens():
    middle = [random_stats(10, 6, scale=0.4), random_stats(5, 7, scale=0.4)]
    loss = rollout_loss(middle, None, keep=0.8)
    loss.total.backward()
    for stats, weight in zip(middle, weights_of(loss), strict=True):
        kept = stats.divergence.grad > 0
        assert stats.divergence.grad[kept].tolist() == pytest.approx(
            [weight.item() / 2 / int(kept.sum())] * int(kept.sum())
        )


def test_outcome_scales_the_middle_turns_alone():
    middle, answer = [random_stats(8, 8), random_stats(8, 9)], random_stats(8, 10)
    right, wrong = (rollout_loss(middle, answer, correct=c, eta=0.2) for c in (True, False))
    assert (part(wrong, "middle") / part(right, "middle")).item() == pytest.approx(1.2 / 0.8)
    assert part(wrong, "answer") == part(right, "answer")


def test_nothing_eligible_is_zero_and_finite():
    loss = rollout_loss([random_stats(0, 1), random_stats(0, 2)], random_stats(0, 3))
    assert loss.total.item() == 0
    assert rollout_loss([], None).total.item() == 0
    assert weights_of(loss).shape == (0,)


@given(st.permutations(range(4)))
def test_the_order_of_turns_does_not_matter(order):
    middle = [random_stats(5 + i, i) for i in range(4)]
    a, b = rollout_loss(middle, None, keep=0.8), rollout_loss([middle[i] for i in order], None, keep=0.8)
    assert a.total.item() == pytest.approx(b.total.item(), abs=1e-14)


@given(lengths=st.lists(st.integers(0, 6), max_size=4), full=st.booleans(), seed=st.integers(0, 10**6))
def test_importance_scales_what_each_token_brings(lengths, full, seed):
    """Factors after the cap, before the mean; the mask and the turn weights do not see them."""
    middle = [random_stats(n, seed + i) for i, n in enumerate(lengths)]
    answer, branch = random_stats(5, seed + 100), random_stats(4, seed + 200) if full else None
    all_stats = [*middle, answer, *([branch] if branch else [])]
    factors = [0.5 + torch.rand(len(m.divergence), dtype=torch.float64) for m in all_stats]
    arguments = {"correct": True, "keep": 0.8, "eta": 0.2, "clip": 0.4}
    plain = rollout_loss(middle, answer, branch, **arguments)
    weighted = rollout_loss(middle, answer, branch, **arguments, importance=factors)
    ones = rollout_loss(middle, answer, branch, **arguments, importance=[torch.ones_like(f) for f in factors])
    assert torch.equal(ones.total, plain.total)
    assert torch.equal(weights_of(weighted), weights_of(plain))
    eligible = [(m, f) for m, f in zip(middle, factors, strict=False) if len(m.divergence)]
    expected = (answer.divergence.clamp_max(0.4) * factors[len(middle)]).mean()
    if branch:
        expected = expected + (branch.divergence.clamp_max(0.4) * factors[-1]).mean()
    for (m, f), weight in zip(eligible, weights_of(plain), strict=True):
        kept = m.entropy >= torch.quantile(m.entropy, 0.2)
        expected = expected + weight * (m.divergence.clamp_max(0.4) * f)[kept].mean() / len(eligible)
    torch.testing.assert_close(weighted.total, expected, rtol=1e-10, atol=1e-12)


@given(
    lengths=st.lists(st.integers(0, 12), max_size=5),
    keep=st.sampled_from([1.0, 0.8, 0.3]),
    ranking=st.sampled_from(["entropy", "random", "divergence", "inverted"]),
    denominator=st.sampled_from(["kept", "all"]),
    mode=st.sampled_from(["hard", "scale"]),
    seed=st.integers(0, 10**6),
)
def test_controls_equal_a_loop(lengths, keep, ranking, denominator, mode, seed):
    """Value and gradient of every ranking, denominator and cap, token by token in plain Python."""
    clip, middle = 0.3, [random_stats(n, seed + i) for i, n in enumerate(lengths)]
    noise = [
        torch.rand(n, generator=torch.Generator().manual_seed(seed + i), dtype=torch.float64)
        for i, n in enumerate(lengths)
    ]
    loss = rollout_loss(
        middle,
        None,
        keep=keep,
        clip=clip,
        ranking=ranking,
        noise=noise,
        denominator=denominator,
        clip_mode=mode,
    )
    eligible = [(m, x) for m, x in zip(middle, noise, strict=True) if len(m.divergence)]
    total, slopes = 0.0, []
    for weight, (m, x) in zip(weights_of(loss).tolist(), eligible, strict=True):
        divergence = m.divergence.tolist()
        entropy = m.entropy.tolist()
        rank = {
            "entropy": entropy,
            "random": x.tolist(),
            "divergence": divergence,
            "inverted": [-h for h in entropy],
        }[ranking]
        position = (1 - keep) * (len(rank) - 1)
        low, high = math.floor(position + 1e-12), math.ceil(position - 1e-12)
        threshold = sorted(rank)[low] + (position - low) * (sorted(rank)[high] - sorted(rank)[low])
        kept = [r >= threshold - 1e-12 for r in rank]
        count = len(rank) if denominator == "all" else sum(kept)
        total += (
            weight
            * sum(min(d, clip) for d, k in zip(divergence, kept, strict=True) if k)
            / count
            / len(eligible)
        )
        for d, k in zip(divergence, kept, strict=True):
            over = 0.0 if mode == "hard" else clip / d if d else 1.0
            slopes.append(weight / count / len(eligible) * (1.0 if d <= clip else over) * k)
    assert loss.total.item() == pytest.approx(total, abs=1e-12)
    if slopes:
        loss.total.backward()
        gradients = [g for m, _ in eligible for g in m.divergence.grad.tolist()]
        assert gradients == pytest.approx(slopes, abs=1e-12)


def test_the_scaling_cap_keeps_the_direction_through_the_divergence():
    z = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([-3.0, 2.0, 0.0], dtype=torch.float64).log_softmax(-1)
    s = z.log_softmax(-1)
    divergence = (s.exp() * (s - t)).sum()[None]
    assert divergence.item() > 0.5
    other = torch.zeros(1, dtype=torch.float64)
    grads = {}
    for mode in ("hard", "scale"):
        loss = rollout_loss([], TokenStats(divergence, other, other, other, other), clip=0.5, clip_mode=mode)
        assert loss.total.item() == pytest.approx(0.5)
        grads[mode] = torch.autograd.grad(loss.total, z, retain_graph=True)[0]
    free = torch.autograd.grad(divergence.sum(), z, retain_graph=True)[0]
    assert grads["hard"].abs().max() == 0
    torch.testing.assert_close(grads["scale"], free * 0.5 / divergence.item())


def test_noise_must_be_given_for_every_middle_reply():
    with pytest.raises(ValueError, match="noise"):
        rollout_loss([random_stats(4, 1), random_stats(3, 2)], None, ranking="random", noise=[torch.rand(4)])

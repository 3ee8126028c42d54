"""Rankings, grades, turn weights and caps: what holds of them whatever the numbers."""

from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.played import random_stats

from smopd.data import load_examples
from smopd.objective import Moment, Tokens, Turns, centred, relative, soft, soft_or, summed
from smopd.rollout import Reply

(EXAMPLE,) = load_examples("pocket:train:1")


def tokens_of(n, seed, scale=0.6):
    reply = Reply(EXAMPLE, "sharded", 0, 0, False, (1,), tuple(range(n)))
    return Tokens(random_stats(n, seed, scale).detached(), reply, Moment(7, 10))


@given(st.lists(st.floats(0, 2), min_size=1, max_size=9), st.booleans())
def test_centred_rewards(rewards, unbiased):
    advantages = centred(rewards, unbiased=unbiased)
    assert sum(advantages) == pytest.approx(0, abs=1e-6)
    if len(set(rewards)) == 1:
        assert advantages == [0.0] * len(rewards)


def test_the_unbiased_deviation():
    assert centred([0.0, 1.0], eps=0) == [-1.0, 1.0]
    assert centred([0.0, 1.0], eps=0, unbiased=True) == pytest.approx([-(0.5**0.5), 0.5**0.5])


@given(n=st.integers(1, 30), seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 0.6, 50.0]))
def test_the_soft_or_is_high_where_either_is(n, seed, scale):
    reply = tokens_of(n, seed, scale)
    score = soft_or()(reply)
    assert ((score >= 0) & (score <= 1 + 1e-12)).all()
    if n > 1:
        assert score[reply.entropy.argmax()].item() == pytest.approx(1)
        assert score[reply.divergence.argmax()].item() == pytest.approx(1)
        assert torch.allclose(score, soft_or()(tokens_of(n, seed, scale * 7)))  # whatever the units
    else:
        assert score.tolist() == [0.0]


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=20), st.sampled_from([0.1, 0.5, 3.0]))
def test_the_soft_cap_grows_ever_more_slowly_and_never_stops(costs, limit):
    cost = torch.tensor(costs, dtype=torch.float64, requires_grad=True)
    soft(limit).apply(cost).sum().backward()
    assert torch.allclose(cost.grad, 1 / (1 + cost.detach() / limit))
    assert (cost.grad > 0).all()
    assert soft(limit).has_gradient(cost.detach()).all()


@settings(max_examples=50)
@given(
    # times 2**-10 still above the floor, under which a median is rounding
    st.lists(st.floats(2e-3, 10), min_size=1, max_size=20), st.sampled_from([1.0, 2.0, 5.0]),
    st.sampled_from([2.0**-10, 0.5, 2.0, 64.0]),
)  # fmt: skip
def test_the_relative_cap_scales_with_the_costs(costs, times, factor):
    cost, cap = torch.tensor(costs, dtype=torch.float64), relative(times)
    assert torch.equal(cap.apply(factor * cost), factor * cap.apply(cost))
    assert torch.equal(cap.over(factor * cost), cap.over(cost))
    assert torch.equal(cap.has_gradient(factor * cost), ~cap.over(cost))
    assert cap.over(cost).sum() <= len(cost) / 2


def test_caps_that_are_off_change_nothing():
    cost = torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64)
    for cap in (soft(inf), relative(inf)):
        assert torch.equal(cap.apply(cost), cost)
        assert cap.has_gradient(cost).all()
        assert not cap.over(cost).any()


def test_entropies_over_the_clip_are_alike():
    reply = tokens_of(20, 3)
    reply.divergence = torch.zeros_like(reply.entropy)
    score = soft_or(0.5)(reply)
    assert int((score == 1).sum()) == 10
    assert int((soft_or()(reply) == 1).sum()) == 1


def test_the_sum_over_turns_is_the_mean_times_their_number():
    turns = Turns((), [random_stats(n, n) for n in (2, 5, 3)], correct=True)
    assert summed(turns).tolist() == [3.0, 3.0, 3.0]

"""Token weights: rankings, gates, schedules, products and the scope they look at."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.played import random_stats

from smopd.data import load_examples
from smopd.objective import (
    Moment,
    Tokens,
    after,
    agreement,
    at_random,
    batch,
    clipped_ratio,
    divergence,
    entropy,
    every_token,
    gate,
    importance,
    inverted_entropy,
    product,
    top,
)  # fmt: skip
from smopd.objective.tokens import as_weight, weights_of
from smopd.rollout import Reply

MIDWAY = Moment(5, 10, (1, 5))
EXAMPLE = load_examples("pocket:train:1")[0]
RANKINGS = {
    entropy: lambda t: t.entropy, inverted_entropy: lambda t: -t.entropy, divergence: lambda t: t.divergence,
    at_random: lambda t: t.noise,
}  # fmt: skip


def tokens(n, seed=0, turn=0, sample=0, moment=MIDWAY, logps=(), advantage=0.0):
    reply = Reply(EXAMPLE, "sharded", sample, turn, False, (1,), tuple(range(n)), logps, advantage=advantage)
    return Tokens(random_stats(n, seed).detached(), reply, moment)


@given(n=st.integers(1, 40), seed=st.integers(0, 10**6), keep=st.sampled_from([0.2, 0.5, 0.8, 1.0]))
def test_every_ranking_keeps_as_many_tokens_and_its_own_top(n, seed, keep):
    reply, counts = tokens(n, seed), set()
    for ranking, rank in RANKINGS.items():
        (weight,) = weights_of(top(ranking, keep), [reply])
        mask = weight != 0
        assert weight.dtype == torch.float64
        assert set(weight.tolist()) <= {0.0, 1.0}
        counts.add(int(mask.sum()))
        assert (~mask).sum() == 0 or rank(reply)[mask].min() > rank(reply)[~mask].max()
    assert len(counts) == 1


def test_noise_is_the_replys_own():
    assert torch.equal(tokens(9).noise, tokens(9, seed=4).noise)  # not of the statistics
    others = [tokens(9, turn=1), tokens(9, sample=1), tokens(9, moment=Moment(5, 10, (1, 6)))]
    assert all(not torch.equal(tokens(9).noise, other.noise) for other in others)


def test_a_weight_begins_late_and_says_so():
    late = after(0.33, top(entropy, 0.5))
    before, then = (tokens(8, moment=Moment(step, 10)) for step in (3, 4))
    assert weights_of(late, [before])[0].tolist() == [1.0] * 8
    assert weights_of(late, [then])[0].sum() == 4
    assert late.logged(before.moment) == {"keep": 1.0}
    assert late.logged(then.moment) == {"keep": 0.5}
    assert every_token.logged(then.moment) == {}


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_the_scope_of_a_weight(lengths, seed):
    """A batch's weight ranks all tokens together, a reply's each reply alone, and a product takes each in its
    own.
    """
    replies = [tokens(n, seed + k, turn=k) for k, n in enumerate(lengths)]
    whole = torch.cat([r.entropy for r in replies])
    over_batch = torch.cat(weights_of(batch(top(entropy, 0.3)), replies))
    assert torch.equal(over_batch.bool(), whole >= torch.quantile(whole, 0.7))
    each = [(r.entropy >= torch.quantile(r.entropy, 0.5)).double() for r in replies]
    assert [w.tolist() for w in weights_of(top(entropy, 0.5), replies)] == [w.tolist() for w in each]
    both = product(batch(top(entropy, 0.3)), top(entropy, 0.5))
    assert torch.equal(torch.cat(weights_of(both, replies)), over_batch * torch.cat(each))
    assert [as_weight(w).scope for w in (both, after(0.2, both), top(entropy, 0.3))] == [
        "batch",
        "batch",
        "reply",
    ]
    late = torch.cat(weights_of(after(0.2, batch(top(entropy, 0.3))), replies))
    assert torch.equal(late, over_batch)


def test_what_a_weight_can_see():
    reply = tokens(4, logps=(-0.5, -0.25, -1.0, -2.0), advantage=0.75)
    assert torch.equal(reply.log_ratio, reply.teacher_logp - reply.student_logp)
    assert reply.position.tolist() == [0, 1, 2, 3]
    assert reply.length.tolist() == [4.0] * 4
    assert reply.advantage.tolist() == [0.75] * 4
    ratio = (reply.student_logp - torch.tensor([-0.5, -0.25, -1.0, -2.0], dtype=torch.float64)).exp()
    assert weights_of(importance(2.0), [reply])[0].tolist() == pytest.approx(ratio.clamp_max(2.0).tolist())
    assert weights_of(importance(2.0), [tokens(3)])[0].tolist() == [1.0] * 3  # an engine that says nothing
    assert weights_of(gate(lambda t: t.position < 2), [reply])[0].tolist() == [1.0, 1.0, 0.0, 0.0]
    signed = weights_of(lambda t: -t.advantage * t.log_ratio, [reply])[0]
    assert torch.equal(signed, -0.75 * reply.log_ratio)


@pytest.mark.parametrize("gain", [2.0, -2.0])
def test_a_clipped_ratio_is_the_gradient_of_ppos_surrogate(gain):
    logps = (-0.5, -1.0, -1.2, -1.5, -3.0)
    reply = tokens(5, logps=logps)
    reply.student_logp = torch.full((5,), -1.2, dtype=torch.float64)
    log_s = reply.student_logp.clone().requires_grad_()
    ratio = (log_s - torch.tensor(logps, dtype=torch.float64)).exp()
    surrogate = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).sum()
    (wanted,) = torch.autograd.grad(surrogate, log_s)
    weight = weights_of(clipped_ratio(lambda t: torch.full_like(t.entropy, gain), 0.2), [reply])[0]
    assert torch.allclose(weight, wanted)
    assert 0 < (weight == 0).sum() < 5


def test_agreement_in_the_scope_of_the_step():
    """Scaled by the variances of all replies: a reply of little disagreement keeps nearly all its weight."""
    replies = []
    for spread in (0.01, 1.0):
        part = tokens(20, seed=int(spread))
        drawn = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        part.auxiliary = drawn * spread
        replies.append(part)
    alone, together = (weights_of(w, replies) for w in (agreement(1.0), batch(agreement(1.0))))
    assert torch.allclose(alone[0], alone[1])
    assert together[0].min() > 0.99
    assert together[1].min() < 0.6
    assert as_weight(batch(agreement(1.0))).scope == "batch"

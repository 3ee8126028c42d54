"""One token from one row of logits, against the definition in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smopd.rollout import Sampling
from smopd.rollout.sampler import pick, uniforms


def test_draws_the_distribution_and_never_a_forbidden_token():
    logits = torch.tensor([[0.0, float("-inf"), 1.0, 2.0, float("-inf")]])
    grid = torch.linspace(0, 1, 4001, dtype=torch.float64)[
        :-1
    ]  # an even grid of numbers stands for many draws
    chosen = pick(logits.expand(len(grid), -1), Sampling(1.0, 1), grid)[0].tolist()
    total = 1 + math.e + math.e**2
    for token, share in ((0, 1 / total), (2, math.e / total), (3, math.e**2 / total)):
        assert chosen.count(token) / len(chosen) == pytest.approx(share, abs=1e-3)
    assert set(chosen) == {0, 2, 3}


def reference(logits: np.ndarray, sampling: Sampling, u: float) -> int:
    """Sort, cut, renormalise, walk: in float64 and one candidate at a time."""
    scaled = logits / sampling.temperature
    order = sorted(range(len(scaled)), key=lambda k: -scaled[k])[: sampling.top_k or None]
    p = np.exp(scaled[order] - scaled[order].max())
    p /= p.sum()
    kept, mass = [], 0.0
    for token, share in zip(order, p, strict=True):
        if mass >= sampling.top_p and kept:
            break
        kept.append((token, share))
        mass += share
    kept.sort()
    total, run = sum(share for _, share in kept), 0.0
    for token, share in kept:
        run += share
        if u * total < run:
            return token
    return kept[-1][0]


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=12, unique=True),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.integers(0, 13),
    st.sampled_from([1.0, 0.9, 0.4, 0.01]),
    st.floats(0.001, 0.999),
)
def test_equals_the_definition(values, temperature, top_k, top_p, u):
    logits = np.array(values) / 7 + np.arange(len(values)) * 1e-3
    sampling = Sampling(temperature, 1, top_p, top_k)
    chosen, logp = pick(torch.tensor(logits)[None], sampling, torch.tensor([u], dtype=torch.float64))
    expected = reference(logits, sampling, u)
    # a number that falls on a border may go either way by rounding
    near = {reference(logits, sampling, min(max(u + d, 0), 1)) for d in (-1e-9, 1e-9)}
    assert int(chosen) in near | {expected}
    assert float(logp) == pytest.approx(logits[int(chosen)] - np.log(np.exp(logits).sum()), abs=1e-10)


def test_greedy_needs_no_numbers_and_temperature_zero_ignores_them():
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    assert pick(logits, Sampling(1.0, 1), None)[0].tolist() == [1]
    assert pick(logits, Sampling(0.0, 1), torch.tensor([0.999]))[0].tolist() == [1]


def test_numbers_are_the_seeds_own():
    assert torch.equal(uniforms(5, 4), uniforms(5, 8)[:4])
    assert not torch.equal(uniforms(5, 4), uniforms(6, 4))

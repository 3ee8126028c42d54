"""Caps at their edges: costs that rounding has made negative, no limit, a median that is rounding."""

from math import inf

import pytest
import torch

from smopd.objective import hard, relative, scale, soft


@pytest.mark.parametrize("limit", [0.5, inf])
def test_a_scaled_cost_is_its_own_up_to_the_limit_and_the_limit_above(limit):
    cost = torch.tensor([-1e-8, 0.0, 0.2, 0.5, 3.0], dtype=torch.float64, requires_grad=True)
    value = scale(limit).apply(cost)
    torch.testing.assert_close(value.detach(), cost.detach().clamp_max(limit), rtol=1e-15, atol=0)
    (slope,) = torch.autograd.grad(value.sum(), cost)
    expected = torch.ones(5, dtype=torch.float64)
    expected[4] = min(1, limit / 3)
    torch.testing.assert_close(slope, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("cap", [hard(0.5), scale(0.5), soft(0.5), relative(3.0)], ids=str)
def test_rounding_below_zero_stays_rounding(cap):
    cost = torch.tensor([-1e-8, -2e-9, 0.0, 1e-9], dtype=torch.float64)
    assert cap.apply(cost).abs().max() <= 1.001e-8


def test_a_median_that_is_rounding_caps_nothing_of_its_size():
    cap = relative(100.0)
    noise, other = (torch.tensor([a, a, a, 5e-5], dtype=torch.float64) for a in (1e-8, 3e-8))
    assert not cap.over(noise).any()
    torch.testing.assert_close(cap.apply(noise)[-1], cap.apply(other)[-1])
    assert cap.over(torch.tensor([1e-8, 1e-8, 1e-8, 2e-4], dtype=torch.float64)).tolist() == [False] * 3 + [
        True
    ]

"""The entropy mask and the turn weights against plain numpy, and the corners named in the contract."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smopd.objective import Moment, keep_mask, reliability, turn_weights

entropies = st.lists(
    st.floats(0, 12).map(lambda x: round(x, 6)) | st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=60
)
deltas = st.lists(st.floats(0, 50), min_size=1, max_size=9)


@given(values=entropies, keep=st.sampled_from([0.8, 0.9, 0.5, 0.25]))
def test_mask_equals_the_numpy_quantile(values, keep):
    h = np.array(values)
    expected = h >= np.minimum(np.quantile(h, 1 - keep), h.max())
    assert keep_mask(torch.tensor(h), keep).tolist() == expected.tolist()


@given(values=entropies, keep=st.floats(0.01, 1))
def test_mask_is_never_empty_and_keeps_a_top_set(values, keep):
    h = torch.tensor(values, dtype=torch.float64)
    mask = keep_mask(h, keep)
    assert mask.any()
    assert mask.sum() >= keep * len(values) - 1
    if (~mask).any():
        assert h[~mask].max() < h[mask].min()  # every tie is on one side


@given(values=entropies, keep=st.floats(0.05, 1), seed=st.integers(0, 99))
def test_mask_follows_a_permutation_of_the_tokens(values, keep, seed):
    h = torch.tensor(values, dtype=torch.float64)
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(keep_mask(h[order], keep), keep_mask(h, keep)[order])


def test_mask_corners():
    assert keep_mask(torch.tensor([3.0]), 0.8).tolist() == [True]
    assert keep_mask(torch.full((7,), 1.5), 0.8).all()
    assert keep_mask(torch.arange(10.0), 1.0).all()
    assert (
        keep_mask(torch.arange(11.0), 0.7).tolist() == [False] * 3 + [True] * 8
    )  # token 3 stands right at the threshold
    assert keep_mask(torch.arange(6.0), 0.8).tolist() == [False] + [True] * 5
    assert keep_mask(torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0]), 0.8).all()  # ties at the threshold stay
    assert keep_mask(torch.zeros(0), 0.8).shape == (0,)
    for wrong in (0.0, -0.1, 1.1):
        with pytest.raises(ValueError, match="keep"):
            keep_mask(torch.ones(3), wrong)


def test_other_interpolations():
    h = torch.tensor([0.0, 1.0, 2.0, 3.0])  # rank 0.6 at keep 0.8
    kept = {
        name: keep_mask(h, 0.8, name).sum().item()
        for name in ("linear", "lower", "higher", "midpoint", "nearest")
    }
    assert kept == {"linear": 3, "lower": 4, "higher": 3, "midpoint": 3, "nearest": 3}


@pytest.mark.parametrize(("total", "first"), [(100, 34), (120, 40), (3, 1), (10, 4), (1, 1)])
def test_the_step_at_which_the_mask_begins(total, first):
    on = [step for step in range(1, total + 1) if Moment(step, total).after(0.33)]
    assert on[0] == first
    assert on == list(range(first, total + 1))


@given(values=deltas, correct=st.booleans(), eta=st.floats(0, 1))
def test_weights_equal_the_formula(values, correct, eta):
    d = np.maximum(np.array(values), 1e-6)
    r = np.median(d) / (np.median(d) + d)
    np.testing.assert_allclose(reliability(torch.tensor(values, dtype=torch.float64)), r, rtol=1e-12)
    w = np.clip(r * (1 + eta * (1 - 2 * int(correct))), 0, 1)
    np.testing.assert_allclose(
        turn_weights(torch.tensor(values, dtype=torch.float64), correct, eta), w, rtol=1e-12
    )


def test_the_median_of_an_even_count_is_the_mean_of_the_middle_two():
    torch.testing.assert_close(reliability(torch.tensor([1.0, 3.0])), torch.tensor([2 / 3, 2 / 5]))


def test_weight_corners():
    assert reliability(torch.tensor([0.0, 0.0])).tolist() == [0.5, 0.5]  # eps keeps 0/0 away
    assert reliability(torch.zeros(0)).shape == (0,)
    assert turn_weights(torch.tensor([1e-9, 5.0, 5.0]), False, 1.0).max() <= 1
    assert not turn_weights(torch.tensor([1.0, 2.0], requires_grad=True), True).requires_grad

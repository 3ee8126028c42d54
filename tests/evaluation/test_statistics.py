"""Intervals and the paired test against published values, exact fractions and their own symmetries."""

from fractions import Fraction
from math import comb, erfc, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from smopd.evaluation.statistics import accuracy_interval, bootstrap, paired, paired_bootstrap, wilson

counts = st.integers(0, 40)


def outcomes(both: int, gained: int, lost: int, neither: int) -> tuple[list[bool], list[bool]]:
    cells = [((True, True), both), ((False, True), gained), ((True, False), lost), ((False, False), neither)]
    pairs = [pair for pair, count in cells for _ in range(count)]
    return [b for b, _ in pairs], [a for _, a in pairs]


def test_wilson_known_values() -> None:
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert wilson(50, 100, level=0.99) == pytest.approx((0.375286, 0.624714), abs=1e-5)
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_estimate_solves_its_equation_and_mirrors(total: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, total))
    low, high = wilson(correct, total)
    assert 0 <= low <= correct / total <= high <= 1
    assert wilson(total - correct, total) == pytest.approx((1 - high, 1 - low))
    for bound in (low, high):
        if 0 < bound < 1:
            assert abs(correct / total - bound) == pytest.approx(
                1.959963985 * sqrt(bound * (1 - bound) / total)
            )
    assert low == 0 or correct > 0
    assert high == 1 or correct < total


@given(st.integers(1, 60), st.data())
def test_wilson_is_scipys_and_that_of_equal_shares(total: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, total))
    theirs = binomtest(correct, total).proportion_ci(0.95, method="wilson")
    assert wilson(correct, total) == pytest.approx((theirs.low, theirs.high), rel=1e-12, abs=1e-15)
    assert bootstrap([correct / total] * total) == pytest.approx(wilson(correct, total))


def test_one_interval_over_items_for_every_accuracy() -> None:
    assert accuracy_interval([1] * 12) == pytest.approx((0.757506, 1.0), abs=1e-6)
    assert accuracy_interval([1] * 3 + [0] * 9) == wilson(3, 12)
    assert accuracy_interval([1] * 3 + [0] * 9) == pytest.approx((0.088942, 0.532305), abs=1e-6)
    shares = [1, 0.5, 0, 0.5, 1, 1]
    assert accuracy_interval(shares) == bootstrap(shares)
    assert accuracy_interval([0.5] * 6) == wilson(3, 6)  # no draw differs from another
    assert accuracy_interval([]) == (0.0, 1.0)


def test_where_every_item_changes_alike_the_interval_still_has_a_width() -> None:
    for change in (0.0, 0.5, 1.0):
        low, high, p = paired_bootstrap([0.0] * 4, [change] * 4)
        assert low < change
        assert high > change or change == high == 1
        assert p == (1.0 if change == 0 else 2 / 2**4)
    same = paired([True] * 4, [True] * 4)
    assert paired_bootstrap([1] * 4, [1] * 4) == (same.low, same.high, same.p)


def test_a_level_widens_the_interval_and_leaves_p() -> None:
    plain, wide = (paired(*outcomes(4, 6, 1, 4), level) for level in (0.95, 0.995))
    assert wide.low < plain.low < plain.high < wide.high
    assert wide.p == plain.p


@pytest.mark.parametrize(
    ("correct", "total", "level"), [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 0.0), (1, 2, 1.0)]
)
def test_wilson_refuses_nonsense(correct: int, total: int, level: float) -> None:
    with pytest.raises(ValueError):
        wilson(correct, total, level)


def test_paired_known_values() -> None:
    result = paired(*outcomes(40, 10, 4, 46))
    assert (result.n, result.gained, result.lost) == (100, 10, 4)
    assert result.difference == pytest.approx(0.06)
    half = 1.959963985 * sqrt(15 - 6 * 6 / 102) / 102
    assert (result.low, result.high) == pytest.approx((6 / 102 - half, 6 / 102 + half))
    assert result.p == pytest.approx(0.1795654296875)
    assert paired(*outcomes(0, 1, 9, 0)).p == 2 * 11 / 1024
    assert paired(*outcomes(3, 5, 0, 3)).p == 2 / 32


def test_nothing_changed_and_nothing_there() -> None:
    same = paired(*outcomes(7, 0, 0, 3))
    assert (same.difference, same.p) == (0.0, 1.0)
    assert same.low < 0 < same.high
    none = paired([], [])
    assert (none.n, none.difference, none.low, none.high, none.p) == (0, 0.0, -1.0, 1.0, 1.0)


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 before, 1 after"):
        paired([True, False], [True])


@given(counts, counts, counts, counts)
def test_p_is_the_exact_binomial_and_the_rest_mirrors(
    both: int, gained: int, lost: int, neither: int
) -> None:
    before, after = outcomes(both, gained, lost, neither)
    there, back = paired(before, after), paired(after, before)
    changed = gained + lost
    exact = min(
        Fraction(1), Fraction(2 * sum(comb(changed, k) for k in range(min(gained, lost) + 1)), 2**changed)
    )
    assert there.p == back.p == pytest.approx(float(exact), rel=1e-12)
    assert (there.gained, there.lost, there.difference) == (back.lost, back.gained, -back.difference)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert -1 <= there.low <= there.difference <= there.high <= 1


def test_large_counts_neither_overflow_nor_vanish() -> None:
    result = paired(*outcomes(0, 5_200, 5_000, 0))
    z = (200 - 1) / sqrt(10_200)  # with continuity correction
    assert result.p == pytest.approx(erfc(z / sqrt(2)), rel=1e-3)
    assert paired(*outcomes(0, 900, 0, 0)).p == pytest.approx(2.0**-899)
    assert paired(*outcomes(0, 20_000, 0, 0)).p == 0.0

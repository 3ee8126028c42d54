"""How sure an accuracy is: an interval for one, and a paired comparison of two on the same items.

Two views of an item (or two models on one item) are paired. Where an item has several runs, the bootstrap
draws whole items. It leaves out the spread over training seeds, which is the study's business.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
ROUNDING = 1e-12  # what differs by less differs by floating-point sums only
DRAWS = 10_000  # of a bootstrap; the error of a tail of 2.5% is then 0.16 points


class Paired(NamedTuple):
    """What changed from `before` to `after`, with a 95% interval and the two-sided exact McNemar p."""

    n: int
    gained: int  # wrong before, right after
    lost: int  # right before, wrong after
    difference: float  # (gained - lost) / n
    low: float
    high: float
    p: float


def wilson(correct: float, total: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a proportion; everything between 0 and 1 where there is nothing to count.

    A sum of shares may stand for the count: shares vary less than counts do, so the interval is wide enough.
    """
    if not 0 <= correct <= total:
        raise ValueError(f"expected 0 <= correct <= total, found {correct} of {total}")
    check_level(level)
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre, scale = correct + z**2 / 2, total + z**2
    half = z * sqrt(correct * (total - correct) / total + z**2 / 4)
    # At the ends the formula gives 0 and 1 but for rounding.
    low, high = (centre - half) / scale, (centre + half) / scale
    return max(0.0, low) if correct else 0.0, min(1.0, high) if correct < total else 1.0


def accuracy_interval(shares: ArrayLike) -> tuple[float, float]:
    """95% interval, over items, of a mean of shares of right runs (one share an item).

    Wilson's where every item was right in all of its runs or in none, as with a single run; else a bootstrap
    that draws whole items. Every accuracy's interval over items is made here.
    """
    values = np.asarray(shares, dtype=float)
    return wilson(float(values.sum()), len(values)) if np.isin(values, (0, 1)).all() else bootstrap(values)


def paired(before: Sequence[bool], after: Sequence[bool], level: float = LEVEL) -> Paired:
    """Compare two outcomes of the same items, given in the same order."""
    if len(before) != len(after):
        counts = f"{len(before)} before, {len(after)} after"
        raise ValueError(f"paired outcomes must be of the same items: {counts}")
    n = len(before)
    gained = sum(1 for b, a in zip(before, after, strict=True) if a and not b)
    lost = sum(1 for b, a in zip(before, after, strict=True) if b and not a)
    low, high = _difference_interval(n, gained, lost, level)
    p = 1.0
    if gained + lost:  # exact McNemar: whether a fair coin splits the changed items so unevenly
        from scipy.stats import binomtest

        p = float(binomtest(gained, gained + lost).pvalue)
    return Paired(n, gained, lost, (gained - lost) / n if n else 0.0, low, high, p)


def bootstrap(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Percentile interval of a mean of shares, drawing items with replacement; the same for the same values.

    Draws of equal values have no width, though the items are still only so many: then it is Wilson's.
    """
    shares = np.asarray(values, dtype=float)
    means = _bootstrap_means(shares)
    if means is None or np.ptp(shares) == 0:
        return wilson(float(shares.sum()), len(shares), level)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_bootstrap(before: ArrayLike, after: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """Interval and two-sided p of the mean difference of the same items, given in the same order.

    Where every item changed by as much, draws have no width: then both are those of `paired`.
    """
    changes = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    means = _bootstrap_means(changes)
    if means is None:
        return -1.0, 1.0, 1.0
    if np.ptp(changes) < ROUNDING:
        up, down = (float(np.clip(sign * changes, 0, None).sum()) for sign in (1, -1))
        p = paired((changes < 0).tolist(), (changes > 0).tolist()).p
        return *_difference_interval(len(changes), up, down, level), p
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    # No finer than the draws can tell: one is added to each tail.
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return float(low), float(high), min(1.0, 2 * (tail + 1) / (DRAWS + 1))


def _bootstrap_means(values: np.ndarray) -> np.ndarray | None:
    """Means of DRAWS samples, or None. The number of items alone decides the draws, so pairs stay pairs."""
    if len(values) < 2:
        return np.full(DRAWS, values[0]) if len(values) else None
    from scipy.stats import bootstrap

    generator = np.random.default_rng(len(values))
    # A thousand at a time, for memory.
    drawn = bootstrap((values,), np.mean, n_resamples=DRAWS, batch=1000, method="percentile", rng=generator)
    return drawn.bootstrap_distribution


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {level}")


def _difference_interval(n: int, gained: float, lost: float, level: float) -> tuple[float, float]:
    """The interval of Agresti and Min (2005): Wald's, after half an item is added to each of the four cells.
    Wald's own has no width at all where nothing, or everything, changed.
    """
    if n == 0:
        return -1.0, 1.0
    g, l, m = gained + 0.5, lost + 0.5, n + 2  # noqa: E741 - as in the formula
    centre = (g - l) / m
    half = NormalDist().inv_cdf((1 + level) / 2) * sqrt(g + l - (g - l) ** 2 / m) / m
    return max(-1.0, centre - half), min(1.0, centre + half)

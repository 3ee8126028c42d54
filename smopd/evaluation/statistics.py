"""Intervals for an accuracy, and paired comparisons of two views or models on the same items. If items have
several runs, the bootstrap draws whole items. Variation of training seeds is left to studies.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
ROUNDING = 1e-12  # smaller differences are floating-point error
DRAWS = 10_000  # of a bootstrap; the standard error of a 2.5% tail is then 0.16 points


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
    """Wilson's score interval of a proportion; (0, 1) if `total` is 0. `correct` may be a sum of shares: they
    vary less than single outcomes, so the interval is wide enough.
    """
    if not 0 <= correct <= total:
        raise ValueError(f"expected 0 <= correct <= total, found {correct} of {total}")
    check_level(level)
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre, scale = correct + z**2 / 2, total + z**2
    half = z * sqrt(correct * (total - correct) / total + z**2 / 4)
    # At the ends the formula gives 0 and 1, except for rounding.
    low, high = (centre - half) / scale, (centre + half) / scale
    return max(0.0, low) if correct else 0.0, min(1.0, high) if correct < total else 1.0


def accuracy_interval(shares: ArrayLike) -> tuple[float, float]:
    """95% interval, over items, of the mean of each item's share of right runs: Wilson's if all shares are 0
    or 1, as with a single run, else a bootstrap over items. Every accuracy's interval is made here.
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
    if gained + lost:  # exact McNemar: would a fair coin split the changed items so unevenly?
        from scipy.stats import binomtest

        p = float(binomtest(gained, gained + lost).pvalue)
    return Paired(n, gained, lost, (gained - lost) / n if n else 0.0, low, high, p)


def bootstrap(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Percentile interval of a mean of shares, from a deterministic bootstrap over items; Wilson's if all
    shares are equal, where a bootstrap has no width.
    """
    shares = np.asarray(values, dtype=float)
    means = _bootstrap_means(shares)
    if means is None or np.ptp(shares) == 0:
        return wilson(float(shares.sum()), len(shares), level)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_bootstrap(before: ArrayLike, after: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """Interval and two-sided p of the mean difference of the same items, given in the same order; those of
    `paired` if all items changed equally, where a bootstrap has no width.
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
    # One is added to the tail, so that p is no finer than the draws can resolve.
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return float(low), float(high), min(1.0, 2 * (tail + 1) / (DRAWS + 1))


def _bootstrap_means(values: np.ndarray) -> np.ndarray | None:
    """Means of DRAWS samples, or None. The draws depend on the number of items alone, so pairs stay pairs."""
    if len(values) < 2:
        return np.full(DRAWS, values[0]) if len(values) else None
    from scipy.stats import bootstrap

    generator = np.random.default_rng(len(values))
    # `batch` bounds the memory.
    drawn = bootstrap((values,), np.mean, n_resamples=DRAWS, batch=1000, method="percentile", rng=generator)
    return drawn.bootstrap_distribution


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, found {level}")


def _difference_interval(n: int, gained: float, lost: float, level: float) -> tuple[float, float]:
    """The interval of Agresti and Min (2005): Wald's, after half an item is added to each of the four cells.
    Wald's own has no width if nothing, or everything, changed.
    """
    if n == 0:
        return -1.0, 1.0
    g, l, m = gained + 0.5, lost + 0.5, n + 2  # noqa: E741 - as in the formula
    centre = (g - l) / m
    half = NormalDist().inv_cdf((1 + level) / 2) * sqrt(g + l - (g - l) ** 2 / m) / m
    return max(-1.0, centre - half), min(1.0, centre + half)

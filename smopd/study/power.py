"""How small a difference a study can detect, given its items and its seeds per arm.

Power is that of `clustered` in statistics.py, averaged over the distribution of its variance estimate: with
three seeds per arm, a noncentral t would promise up to ten points too much. Arms are assumed to vary alike,
with normal means. For several comparisons, pass a smaller `alpha`.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Required, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv, ndtr, stdtrit

from smopd.study.statistics import FLOOR, arms, components

ALPHA = 0.05


class Options(TypedDict, total=False):
    """Keywords of `power_of`, explained there; the first three describe a Design."""

    seed_sd: Required[float]
    discordance: Required[float]
    noise: float | None
    alpha: float
    verdict: bool


@dataclass(frozen=True)
class Design:
    """Standard deviations, as fractions, that two arms suggest for the next study: `seed_sd` of an arm's
    accuracy over seeds on `items`, `discordance` over items of the difference of the arms' expected scores
    (item x arm), and `noise` of one run of one item around its expectation by arm, seed and item (seed x
    item).
    """

    items: int
    seed_sd: float
    discordance: float
    noise: float


def design(a: ArrayLike, b: ArrayLike) -> Design:
    """Estimate a design from two arms [seeds, items] of at least two seeds each, with equal weight."""
    x, y = arms(a, b)
    part, n = components(x, y), x.shape[1]
    seeds = (part.seeds_a * len(x) + part.seeds_b * len(y)) / 2
    noise = (part.noise_a * len(x) + part.noise_b * len(y)) * n / 2
    return Design(n, sqrt(seeds), sqrt(max(part.items - part.noise_a - part.noise_b, 0.0) * n), sqrt(noise))


def power_of(items: int, seeds: int, effect: float, **options: Unpack[Options]) -> float:
    """Chance that `clustered` detects a true difference `effect` (a fraction) at the two-sided level alpha.

    `noise` matters only for the floor of the test's variance and for single seeds; None takes all of
    `seed_sd` as noise. A `seed_sd` below noise / sqrt(items), which it includes, is raised to that. With one
    seed per arm, only items are tested and `effect` is that of these two runs. `verdict`: the chance that
    `compare` says gain or loss, which needs Welch's p too: up to six points lower with three seeds, much
    lower with two, the same from five on.
    """
    return _power(effect, *_thresholds(items, seeds, **options))


def detectable(items: int, seeds: int, *, power: float = 0.8, **options: Unpack[Options]) -> float:
    """The smallest true difference detected with the given power, see `power_of`; it may exceed 1."""
    alpha = options.get("alpha", ALPHA)
    if not alpha < power < 1:
        raise ValueError(f"power lies between alpha ({alpha}) and 1, found {power}")
    se, critical = _thresholds(items, seeds, **options)
    if _power(0.0, se, critical) >= power:
        return 0.0
    most = se
    while _power(most, se, critical) < power:
        most *= 2
    from scipy.optimize import brentq

    return float(brentq(lambda effect: _power(effect, se, critical) - power, 0.0, most, xtol=1e-9 * most))


def sentence(items: int, seeds: int, *, power: float = 0.8, **options: Unpack[Options]) -> str:
    smallest = detectable(items, seeds, power=power, **options)
    design = f"With {items} items and {'1 seed' if seeds == 1 else f'{seeds} seeds'} an arm"
    level = f"(power {power:.0%}, two-sided {100 * options.get('alpha', ALPHA):g}%)"
    if smallest > 1:
        return f"{design} no difference can be detected {level}"
    text = f"{design} you can detect {round_up(smallest)} points {level}"
    return f"{text}, for these two runs only: run-to-run variation is not covered" if seeds == 1 else text


def round_up(share: float) -> str:
    """In points, rounded up so as not to promise too much."""
    return f"{ceil(round(share * 1000, 6)) / 10:.1f}"


def _thresholds(
    items: int, seeds: int, *, seed_sd: float, discordance: float, noise: float | None = None,
    alpha: float = ALPHA, verdict: bool = False,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """The true standard error, and equally likely values of the smallest significant difference."""
    if items < 2 or seeds < 1:
        raise ValueError(f"a design needs two items and one seed, found {items} and {seeds}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, found {alpha}")
    if not all(0 <= value < np.inf for value in (seed_sd, discordance, noise or 0.0)):
        raise ValueError(f"spreads are finite and not negative, found {seed_sd}, {discordance} and {noise}")
    if verdict and seeds == 1:
        raise ValueError("a single seed never gives a gain or a loss")
    resolution = (items + 2.0) ** -2
    within = seed_sd**2 if noise is None else noise**2 / items  # of one arm's accuracy
    item_part = discordance**2 / items + 2 * within / seeds
    item_draws = item_part * _spreads(items - 1, 8)  # fewer than over seeds: it is known far better
    if seeds == 1:
        variance = np.maximum(item_draws, resolution)
        return sqrt(max(item_part, resolution)), stdtrit(items - 1.0, 1 - alpha / 2) * np.sqrt(variance)
    seed_part, noise_part = max(seed_sd**2, within) / seeds, within / seeds
    draws = seed_part * _spreads(seeds - 1, 40)  # 300 change a detectable difference by 0.2%
    a, b, c = (grid.ravel() for grid in np.meshgrid(draws, draws, item_draws))
    variance = np.maximum(a + b + np.maximum(c - 2 * noise_part, 0.0), np.maximum(FLOOR * c, resolution))
    over_seeds = (a**2 + b**2) / (seeds - 1)
    squares = over_seeds + (c**2 + 2 * noise_part**2 / (seeds - 1)) / (items - 1)
    most = 2.0 * seeds + items - 3
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(squares > 0, np.minimum(variance**2 / squares, most), most)
        welch_df = np.where(over_seeds > 0, (a + b) ** 2 / over_seeds, 2.0 * seeds - 2)
    critical = stdtrit(df, 1 - alpha / 2) * np.sqrt(variance)
    if verdict:
        welch = stdtrit(welch_df, 1 - alpha / 2) * np.sqrt(a + b)
        run_to_run = np.sqrt((a + b) / 2 * seeds)
        critical = np.maximum(critical, np.maximum(welch, run_to_run))
    return sqrt(max(2 * seed_part + discordance**2 / items, resolution)), critical


def _spreads(df: int, count: int) -> np.ndarray:
    """Equally likely values of a sample variance whose expectation is 1: quantiles of chi-squared over df."""
    return 2 * gammaincinv(df / 2, (np.arange(count) + 0.5) / count) / df


def _power(effect: float, se: float, critical: np.ndarray) -> float:
    return float(np.mean(ndtr((effect - critical) / se) + ndtr(-(effect + critical) / se)))

"""Statistics of studies that compare training methods over seeds and evaluation items.

An accuracy varies with the training seed and with the items: Welch's test sees only the seeds, the paired
tests of smopd.evaluation.statistics only the items, `clustered` both. The treatment comes first, the
reference second. Seeds are never paired between arms.

Power, by which a study knows how small a difference it can detect, is that of `clustered`, averaged over the
distribution of its variance estimate: with three seeds per arm, a noncentral t would promise up to ten points
too much. Arms are assumed to vary alike, with normal means. For several comparisons, pass a smaller `alpha`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isnan, nan, sqrt
from typing import NamedTuple, Required, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv, ndtr, stdtr, stdtrit

from smopd.evaluation.statistics import LEVEL, ROUNDING, check_level, paired, paired_bootstrap

FLOOR = 0.5  # of the items' part; see clustered()
ALPHA = 0.05


class Welch(NamedTuple):
    """Welch's t test; the one-sided p is for mean(a) > mean(b), a direction to be fixed beforehand."""

    delta: float
    t: float
    df: float
    p_two_sided: float
    p_one_sided: float


class Clustered(NamedTuple):
    """A difference over seeds and items; `seeds_counted` is False if a single seed left only the items."""

    delta: float
    low: float
    high: float
    se: float
    df: float
    p: float
    seeds_counted: bool = True


class Components(NamedTuple):
    """Variance components of a difference, each already divided by its sample size."""

    seeds_a: float  # over the seeds of a, residual noise included
    seeds_b: float
    items: float  # over the items' differences, residual noise included
    noise_a: float  # seed x item within an arm, included in the seeds' and the items' parts
    noise_b: float


class ItemTest(NamedTuple):
    """Items won and lost, the mean difference with its 95% interval over items, and an exact p."""

    gained: int
    lost: int
    difference: float
    low: float
    high: float
    p: float
    test: str


def mean_sd(values: ArrayLike) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1), which is nan for a single value."""
    x = numbers(values)
    if x.ndim != 1:
        raise ValueError(f"expected one number a seed, found an array of shape {x.shape}")
    mean = float(x.mean())
    if len(x) < 2:
        return mean, nan
    # Equal values have no spread, although rounding may move their mean.
    return mean, float(x.std(ddof=1)) if np.ptp(x) > ROUNDING * np.abs(x).max() else 0.0


def welch(a: ArrayLike, b: ArrayLike) -> Welch:
    """Welch's t test, one number per seed; nan with fewer than two values on a side or without any spread."""
    delta, se, df = _difference(numbers(a), numbers(b))
    t = delta / se
    return Welch(delta, t, df, float(2 * stdtr(df, -abs(t))), float(stdtr(df, -t)))


def welch_interval(a: ArrayLike, b: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Interval of mean(a) - mean(b) that belongs to `welch`; nan if there is no test."""
    check_level(level)
    delta, se, df = _difference(numbers(a), numbers(b))
    half = float(stdtrit(df, (1 + level) / 2)) * se
    return delta - half, delta + half


def _difference(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Difference of means, its standard error, and the degrees of freedom after Welch and Satterthwaite."""
    (mean_a, sd_a), (mean_b, sd_b) = mean_sd(x), mean_sd(y)
    delta, largest = mean_a - mean_b, max(sd_a, sd_b)
    if min(len(x), len(y)) < 2:
        return delta, nan, nan
    if not largest:  # from the values, whose means would carry rounding
        delta = float(x[0] - y[0])
        return 0.0 if abs(delta) <= ROUNDING * max(abs(x[0]), abs(y[0])) else delta, nan, nan
    # In units of the larger deviation, since squares of very small ones underflow.
    var_a, var_b = (sd_a / largest) ** 2 / len(x), (sd_b / largest) ** 2 / len(y)
    df = (var_a + var_b) ** 2 / (var_a**2 / (len(x) - 1) + var_b**2 / (len(y) - 1))
    return delta, largest * sqrt(var_a + var_b), df


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p in the order given; nan stays nan and does not count in the family."""
    if any(not (isnan(p) or 0 <= p <= 1) for p in p_values):
        raise ValueError(f"a p lies between 0 and 1, found {list(p_values)}")
    adjusted, reached = [nan] * len(p_values), 0.0
    ranked = sorted((p, place) for place, p in enumerate(p_values) if not isnan(p))
    for rank, (p, place) in enumerate(ranked):
        reached = max(reached, min(1.0, (len(ranked) - rank) * p))
        adjusted[place] = reached
    return adjusted


def clustered(a: ArrayLike, b: ArrayLike, level: float = LEVEL, *, fixed: bool = False) -> Clustered:
    """Difference of two arms [seeds, items] on the same items, where both seeds and items are random.

    An outcome is arm + item + item x arm + seed + seed x item, all but the arm random. The items cancel, so
    the variance of the difference is var(item x arm) / items + sum over arms of var(seed) / seeds + var(seed
    x item) / (seeds * items). The seeds' part (the variance over seeds of their means, as in Welch's test)
    and the items' part (the variance over items of their differences) both include the last term, so it is
    subtracted once: V = seeds + max(items - noise, 0), with Satterthwaite's degrees of freedom. V is at least
    half the items' part, since a few seeds that happen to agree do not undo the noise within them (all of it
    would cover too much, see docs/study.md), and at least that of one item in items + 2 (Agresti and Min). A
    single seed on a side leaves only the items, unless b is `fixed`: an untrained model, random only in its
    items.
    """
    x, y = arms(a, b)
    n, (n_a, n_b) = x.shape[1], (len(x), len(y))
    if fixed and n_b > 1:
        raise ValueError(f"a fixed reference has one row, found {n_b}")
    delta = float(x.mean() - y.mean())
    counted = n_a > 1 and (fixed or n_b > 1)
    if counted:
        part = components(x, y, fixed=fixed)
        variance = part.seeds_a + part.seeds_b + max(part.items - part.noise_a - part.noise_b, 0.0)
        variance = max(variance, FLOOR * part.items, (n + 2.0) ** -2)
        df_a, df_b = n_a - 1, max(n_b - 1, 1)  # of a fixed reference, df_b divides 0
        squares = part.seeds_a**2 / df_a + part.seeds_b**2 / df_b + part.items**2 / (n - 1)
        squares += (part.noise_a**2 / df_a + part.noise_b**2 / df_b) / (n - 1)
        most = n_a + n_b + n - 3.0  # the degrees of freedom of all parts
        df = min(variance**2 / squares, most) if squares > 0 else most
    else:
        variance = max(float((x.mean(axis=0) - y.mean(axis=0)).var(ddof=1)) / n, (n + 2.0) ** -2)
        df = n - 1.0
    check_level(level)
    se = sqrt(variance)
    half, p = float(stdtrit(df, (1 + level) / 2)) * se, float(2 * stdtr(df, -abs(delta) / se))
    low, high = max(delta - half, -1.0), min(delta + half, 1.0)  # the range of a difference of shares
    return Clustered(delta, low, high, se, df, p, counted)


def components(a: ArrayLike, b: ArrayLike, *, fixed: bool = False) -> Components:
    """Variance components of two arms [seeds, items] of at least two seeds each; a `fixed` b is one row."""
    x, y = arms(a, b)
    if len(x) < 2 or (len(y) < 2 and not fixed):
        raise ValueError(f"the spread over seeds needs two seeds an arm, found {len(x)} and {len(y)}")
    n, seeds, noise = x.shape[1], [0.0, 0.0], [0.0, 0.0]
    for place, arm in enumerate((x,) if fixed else (x, y)):
        by_seed, by_item = arm.mean(axis=1), arm.mean(axis=0)
        rest = arm - by_seed[:, None] - by_item + arm.mean()
        noise[place] = float((rest**2).sum()) / ((len(arm) - 1) * (n - 1)) / arm.size
        seeds[place] = mean_sd(by_seed)[1] ** 2 / len(arm)
    items = float((x.mean(axis=0) - y.mean(axis=0)).var(ddof=1)) / n
    return Components(seeds[0], seeds[1], items, noise[0], noise[1])


def item_test(a: ArrayLike, b: ArrayLike) -> ItemTest:
    """Whether these very runs of a and b, [seeds, items], would differ on other items.

    With one seed of 0/1 scores each: the exact McNemar test with its interval. Otherwise on means over seeds:
    an exact sign test (on how many items is a ahead?) and a bootstrap over items (by how much?), which can
    disagree.
    """
    x, y = arms(a, b)
    once = len(x) == len(y) == 1 and bool(np.isin([x, y], (0, 1)).all())
    new, old = x.mean(axis=0), y.mean(axis=0)
    ahead, behind = new - old > ROUNDING, old - new > ROUNDING
    # Equal items count as wrong in both, which is no change.
    result = paired(behind.tolist(), ahead.tolist())
    low, high = (result.low, result.high) if once else paired_bootstrap(old, new)[:2]
    test = "exact McNemar" if once else "exact sign test, bootstrap interval"
    return ItemTest(result.gained, result.lost, float(new.mean() - old.mean()), low, high, result.p, test)


def numbers(values: ArrayLike) -> np.ndarray:
    """Convert to floats; a ValueError if there are none or one is not finite."""
    try:
        x = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ValueError("expected numbers, as many in every row") from None
    if x.size == 0:
        raise ValueError("expected at least one value, found none")
    if not np.isfinite(x).all():
        raise ValueError("expected finite numbers, found nan or infinity among the values")
    return x


def arms(a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Check two arms [seeds, items] of shares between 0 and 1 on the same items."""
    x, y = numbers(a), numbers(b)
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(f"expected arrays [seeds, items], found shapes {x.shape} and {y.shape}")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"the arms must have the same items: {x.shape[1]} and {y.shape[1]}")
    if x.shape[1] < 2:
        raise ValueError("a spread over items needs at least two items, found one")
    if min(x.min(), y.min()) < 0 or max(x.max(), y.max()) > 1:
        raise ValueError("an item's score is between 0 and 1 (the share of its runs that were right)")
    return x, y


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

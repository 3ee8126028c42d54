"""Every test and interval against scipy, statsmodels or plain loops, against its own symmetries, and by
simulated studies.
"""

from collections.abc import Callable
from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest
import statsmodels.formula.api as formula
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats
from scipy.special import expit, logit
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from smopd.evaluation.statistics import paired, paired_bootstrap
from smopd.study.statistics import clustered, components, holm, item_test, mean_sd, welch, welch_interval

STUDIES = 2_000
PAPER = {
    "sharded": {
        "baseline": (64.5, 64.5, 63.5),
        "entropy": (66.0, 65.5, 66.0),
        "combined": (65.0, 66.5, 65.0),
    },
    "full": {"baseline": (78.5, 77.5, 78.5), "entropy": (79.5, 80.0, 79.5), "combined": (79.0, 77.5, 79.0)},
}
accuracies = st.lists(
    st.integers(0, 200).map(lambda right: right / 2), min_size=2, max_size=6
)  # in percent of 200 items
seeds_of = st.integers(1, 4)


@st.composite
def two_arms(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items, share = draw(st.integers(2, 30)), draw(st.sampled_from((0.05, 0.5, 0.9)))
    a, b = (rng.random((draw(seeds_of), items)) < share for _ in range(2))
    return a.astype(float), b.astype(float)


# The paper's rows


def test_means_and_deviations_of_the_paper() -> None:
    cells = [f"{mean:.1f}±{sd:.1f}" for view in PAPER.values() for mean, sd in map(mean_sd, view.values())]
    assert cells == ["64.2±0.6", "65.8±0.3", "65.5±0.9", "78.2±0.6", "79.7±0.3", "78.5±0.9"]


def test_p_of_the_paper() -> None:
    rows = PAPER["sharded"]
    entropy, combined = (welch(rows[arm], rows["baseline"]) for arm in ("entropy", "combined"))
    assert (entropy.delta, combined.delta) == pytest.approx((5 / 3, 4 / 3))
    assert (round(entropy.p_two_sided, 3), round(combined.p_two_sided, 3)) == (0.022, 0.101)
    assert (round(entropy.p_one_sided, 3), round(combined.p_one_sided, 4)) == (0.011, 0.0504)


# Welch


def test_mean_sd_against_numpy_and_without_spread() -> None:
    assert mean_sd([1, 2, 4]) == pytest.approx((np.mean([1, 2, 4]), np.std([1, 2, 4], ddof=1)))
    assert mean_sd([0.1] * 3)[1] == 0.0  # numpy's is 1.7e-17
    assert mean_sd([7.0])[0] == 7.0
    assert isnan(mean_sd([7.0])[1])


@given(accuracies, accuracies)
def test_welch_against_scipy_and_statsmodels(a: list[float], b: list[float]) -> None:
    if len(set(a)) == len(set(b)) == 1:
        return
    ours, theirs = welch(a, b), stats.ttest_ind(a, b, equal_var=False)
    assert (ours.t, ours.df, ours.p_two_sided) == pytest.approx(
        (theirs.statistic, theirs.df, theirs.pvalue), rel=1e-8
    )
    greater = stats.ttest_ind(a, b, equal_var=False, alternative="greater")
    assert ours.p_one_sided == pytest.approx(greater.pvalue, rel=1e-8)
    for level in (0.8, 0.95):
        assert welch_interval(a, b, level) == pytest.approx(
            tuple(theirs.confidence_interval(level)), rel=1e-8, abs=1e-9
        )
    compared = CompareMeans(DescrStatsW(a), DescrStatsW(b)).tconfint_diff(alpha=0.05, usevar="unequal")
    assert welch_interval(a, b) == pytest.approx(compared, rel=1e-8, abs=1e-9)


@given(accuracies, accuracies, st.integers(-50, 50), st.sampled_from((0.01, 0.5, 3.0)))
def test_welch_under_swap_order_shift_and_scale(
    a: list[float], b: list[float], shift: int, scale: float
) -> None:
    if len({*a}) == len({*b}) == 1:  # no test
        return
    original, swapped = welch(a, b), welch(b, a)
    assert (swapped.delta, swapped.t) == pytest.approx((-original.delta, -original.t))
    assert (swapped.df, swapped.p_two_sided) == pytest.approx((original.df, original.p_two_sided))
    assert swapped.p_one_sided == pytest.approx(1 - original.p_one_sided)
    assert welch(sorted(a), sorted(b, reverse=True)) == pytest.approx(original, rel=1e-7, abs=1e-12)
    assert welch([x + shift for x in a], [x + shift for x in b]) == pytest.approx(
        original, rel=1e-7, abs=1e-12
    )
    scaled = welch([x * scale for x in a], [x * scale for x in b])
    assert scaled == pytest.approx((original.delta * scale, *original[1:]), rel=1e-7, abs=1e-12)
    low, high = welch_interval(a, b)
    assert (low <= 0 <= high) == (original.p_two_sided >= 0.05)


def test_welch_at_its_edges() -> None:
    single = welch([1.0], [2.0, 3.0])
    assert single.delta == -1.5
    assert all(map(isnan, single[1:]))
    assert all(map(isnan, welch_interval([1.0], [2.0, 3.0])))
    for a, b, delta in (([0.1] * 3, [0.1] * 4, 0.0), ([2, 2], [1, 1], 1.0)):  # no spread at all: no test
        assert welch(a, b).delta == delta
        assert all(map(isnan, (*welch(a, b)[1:], *welch_interval(a, b))))
    assert welch([2, 2, 2], [1, 0, 1]).df == pytest.approx(2.0)  # one side without spread: the other one's


@pytest.mark.parametrize("bad", [[], [1.0, nan], [inf, 1.0], ["right"], [[1.0], [1.0, 2.0]]])
@pytest.mark.parametrize(
    "function", [lambda v: mean_sd(v), lambda v: welch(v, [1, 2]), lambda v: welch_interval([1, 2], v)]
)
def test_nonsense_is_refused(function: Callable[[object], object], bad: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        function(bad)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        welch_interval([1, 2], [1, 3], level)
    with pytest.raises(ValueError, match="level"):
        clustered([[0, 1], [1, 1]], [[1, 0], [1, 1]], level)


def normal_studies(
    seeds: int, sd_a: float, sd_b: float, shift: float, studies: int
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seeds)
    return rng.normal(0.6 + shift, sd_a, (studies, seeds)), rng.normal(0.6, sd_b, (studies, seeds))


# The rates expected are those of scipy's test in 400,000 studies: with 3 seeds Welch's test finds too little
# where the spreads are equal and a little too much where they are very unequal.
@pytest.mark.parametrize(
    ("seeds", "sd_a", "sd_b", "two_sided", "one_sided"),
    [
        (3, 0.01, 0.01, 3.45, 3.89),
        (3, 0.01, 0.004, 4.73, 4.76),
        (3, 0.01, 0.002, 5.77, 5.26),
        (5, 0.01, 0.01, 4.39, 4.58),
        (5, 0.02, 0.01, 4.90, 4.94),
    ],
)
def test_welch_error_rates_and_coverage(
    seeds: int, sd_a: float, sd_b: float, two_sided: float, one_sided: float
) -> None:
    a, b = normal_studies(seeds, sd_a, sd_b, 0.02, 2 * STUDIES)
    tests = [welch(x - 0.02, y) for x, y in zip(a, b, strict=True)]
    # Monte Carlo error of 4,000 studies is 0.35 points; three of them.
    assert 100 * np.mean([w.p_two_sided < 0.05 for w in tests]) == pytest.approx(two_sided, abs=1.05)
    assert 100 * np.mean([w.p_one_sided < 0.05 for w in tests]) == pytest.approx(one_sided, abs=1.05)
    bounds = np.array([welch_interval(x, y) for x, y in zip(a, b, strict=True)])
    assert 0.93 <= np.mean((bounds[:, 0] <= 0.02) & (bounds[:, 1] >= 0.02)) <= 0.97


# Holm


@given(st.lists(st.one_of(st.just(nan), st.floats(0, 1)), max_size=8), st.integers(0, 1000))
def test_holm_by_its_definition_and_in_any_order(p_values: list[float], shuffle: int) -> None:
    all_adjusted, ranked = holm(p_values), sorted(p for p in p_values if not isnan(p))
    for p, adjusted in zip(p_values, all_adjusted, strict=True):
        least = max(
            (min(1.0, (len(ranked) - rank) * q) for rank, q in enumerate(ranked) if q <= p), default=nan
        )
        assert adjusted == pytest.approx(least, nan_ok=True)
    order = np.random.default_rng(shuffle).permutation(len(p_values))
    assert holm([p_values[i] for i in order]) == pytest.approx([all_adjusted[i] for i in order], nan_ok=True)
    assert all(p <= q <= 1 for p, q in zip(p_values, all_adjusted, strict=True) if not isnan(p))


def test_holm_against_statsmodels() -> None:
    rng = np.random.default_rng(6)
    for size in range(1, 9):
        p_values = (rng.random(size) ** 3).tolist()
        assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


def test_holm_known_values_and_nonsense() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, nan, 0.5])[::2] == [1.0, 1.0]
    assert holm([]) == []
    for bad in (-0.1, 1.1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            holm([bad])


# Over items


@given(two_arms())
def test_item_test_against_scipy_and_statsmodels(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    result, change = item_test(a, b), a.mean(axis=0) - b.mean(axis=0)
    ahead, behind = int((change > 1e-9).sum()), int((change < -1e-9).sum())
    assert (result.gained, result.lost) == (ahead, behind)
    assert result.difference == pytest.approx(a.mean() - b.mean())
    assert result.p == pytest.approx(stats.binomtest(ahead, ahead + behind).pvalue if ahead + behind else 1.0)
    if len(a) == len(b) == 1:
        assert result.p == pytest.approx(min(1.0, mcnemar([[0, ahead], [behind, 0]], exact=True).pvalue))
        theirs = paired(list(b[0] > 0), list(a[0] > 0))
        assert (result.low, result.high, result.difference) == pytest.approx(
            (theirs.low, theirs.high, theirs.difference)
        )
        assert result.test == "exact McNemar"
    else:
        assert (result.low, result.high) == paired_bootstrap(b.mean(axis=0), a.mean(axis=0))[:2]
        assert "sign test" in result.test


def test_item_test_of_one_seed_of_shares_is_not_mcnemar() -> None:
    result = item_test([[0.1 + 0.2, 0.5, 1.0]], [[0.3, 0.25, 0.0]])
    assert (result.gained, result.lost, result.p) == (2, 0, 0.5)  # 0.1 + 0.2 is 0.3
    assert result.test == "exact sign test, bootstrap interval"


# Over seeds and items


def test_components_against_loops_and_an_analysis_of_variance() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.random((seeds, 7)).round(2) for seeds in (3, 4))
    parts, squares = components(a, b), []
    for arm in (a, b):
        rows = [{"y": y, "seed": s, "item": i} for (s, i), y in np.ndenumerate(arm)]
        data = {key: [row[key] for row in rows] for key in ("y", "seed", "item")}
        squares.append(anova_lm(formula.ols("y ~ C(seed) + C(item)", data).fit())["mean_sq"])
    # A mean square over seeds is `items` times the variance of their means.
    assert (parts.seeds_a, parts.seeds_b) == pytest.approx(
        (squares[0]["C(seed)"] / 21, squares[1]["C(seed)"] / 28)
    )
    assert (parts.noise_a, parts.noise_b) == pytest.approx(
        (squares[0]["Residual"] / 21, squares[1]["Residual"] / 28)
    )
    changes = [sum(a[:, i]) / 3 - sum(b[:, i]) / 4 for i in range(7)]
    assert parts.items == pytest.approx(sum((c - sum(changes) / 7) ** 2 for c in changes) / 6 / 7)


def test_clustered_is_made_of_its_components() -> None:
    rng = np.random.default_rng(4)
    a, b = ((rng.random((seeds, 50)) < 0.6).astype(float) for seeds in (3, 5))
    part, estimate = components(a, b), clustered(a, b, level=0.9)
    total = part.seeds_a + part.seeds_b + part.items - part.noise_a - part.noise_b
    assert total > part.items / 2
    df = total**2 / (
        part.seeds_a**2 / 2
        + part.seeds_b**2 / 4
        + part.items**2 / 49
        + part.noise_a**2 / 98
        + part.noise_b**2 / 196
    )
    assert (estimate.delta, estimate.se, estimate.df) == pytest.approx((a.mean() - b.mean(), total**0.5, df))
    assert (estimate.low, estimate.high) == pytest.approx(
        stats.t.interval(0.9, df, estimate.delta, estimate.se)
    )
    assert estimate.p == pytest.approx(2 * stats.t.sf(abs(estimate.delta) / estimate.se, df))
    assert estimate.seeds_counted


def test_a_fixed_reference_adds_nothing_but_its_items() -> None:
    rng = np.random.default_rng(6)
    a, b = ((rng.random((seeds, 60)) < 0.5).astype(float) for seeds in (4, 1))
    part, estimate = components(a, b, fixed=True), clustered(a, b, fixed=True)
    against_itself = components(a, a)  # the parts of an arm are its own, whatever it is compared with
    assert (part.seeds_a, part.noise_a) == pytest.approx((against_itself.seeds_a, against_itself.noise_a))
    assert (part.seeds_b, part.noise_b) == (0, 0)
    differences = a.mean(axis=0) - b[0]
    assert part.items == pytest.approx(differences.var(ddof=1) / 60)
    total = part.seeds_a + part.items - part.noise_a
    df = total**2 / (part.seeds_a**2 / 3 + part.items**2 / 59 + part.noise_a**2 / (3 * 59))
    assert (estimate.delta, estimate.se, estimate.df) == pytest.approx((differences.mean(), total**0.5, df))
    assert estimate.seeds_counted
    assert clustered(a[:1], b, fixed=True) == clustered(a[:1], b)  # one seed: the items alone
    with pytest.raises(ValueError, match="one row, found 4"):
        clustered(b, a, fixed=True)


def test_an_interval_ends_where_differences_end() -> None:
    a, b = np.repeat([[1.0], [1.0], [0.0]], 40, axis=1), np.zeros((3, 40))
    estimate = clustered(a, b)
    free = stats.t.interval(0.95, estimate.df, estimate.delta, estimate.se)
    assert free[0] < 0
    assert free[1] > 1
    assert (estimate.low, estimate.high) == pytest.approx((free[0], 1))
    assert (clustered(b, a).low, clustered(b, a).high) == pytest.approx((-1, -free[0]))


@given(two_arms(), st.integers(0, 1000))
def test_clustered_under_permutation_and_swap(pair: tuple[np.ndarray, np.ndarray], shuffle: int) -> None:
    a, b = pair
    rng, original = np.random.default_rng(shuffle), clustered(a, b)
    items = rng.permutation(a.shape[1])
    again = clustered(rng.permutation(a)[:, items], rng.permutation(b)[:, items])
    assert again == pytest.approx(original, rel=1e-7, abs=1e-12)
    swapped = clustered(b, a)
    assert (-swapped.delta, -swapped.high, -swapped.low) == pytest.approx(original[:3], rel=1e-7, abs=1e-12)
    assert swapped[3:] == pytest.approx(original[3:], rel=1e-7, abs=1e-12)
    assert original.low <= original.delta <= original.high
    assert original.se >= 1 / (a.shape[1] + 2) - 1e-15
    assert 0 < original.df <= len(a) + len(b) + a.shape[1] - 3
    assert original.seeds_counted == (min(len(a), len(b)) > 1)


def test_a_single_seed_is_judged_over_items_alone() -> None:
    rng = np.random.default_rng(5)
    a, b = ((rng.random((seeds, 80)) < 0.7).astype(float) for seeds in (1, 3))
    ours, theirs = clustered(a, b), stats.ttest_rel(a[0], b.mean(axis=0))
    assert (ours.p, ours.df) == pytest.approx((theirs.pvalue, 79))
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert not ours.seeds_counted


def test_a_difference_of_one_item_is_never_clear_and_no_interval_is_without_width() -> None:
    for seeds in (1, 2, 3, 5):
        b = np.zeros((seeds, 100))
        always, somewhere = b.copy(), b.copy()
        always[:, 0] = 1  # every seed gets the same item more
        somewhere[range(seeds), range(seeds)] = 1  # every seed another one
        for a in (always, somewhere):
            assert clustered(a, b).p > 0.3
        same = clustered(b, b)
        assert same.p == 1.0
        assert same.low < 0 < same.high
        assert clustered(b + 1, b).p < 1e-6


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1, 0], [0, 1], "seeds, items"),
        ([[1, 0]], [[1, 0, 1]], "same items"),
        ([[1]], [[0]], "two items"),
        ([[64.5, 60]], [[1, 0]], "between 0 and 1"),
        ([[1, nan]], [[1, 0]], "finite"),
        ([[1, 0], [1]], [[1, 0]], "every row"),
    ],
)
def test_arms_that_cannot_be_compared(a: Any, b: Any, message: str) -> None:
    for function in (clustered, item_test):
        with pytest.raises(ValueError, match=message):
            function(a, b)


def test_components_need_two_seeds() -> None:
    with pytest.raises(ValueError, match="two seeds"):
        components([[1, 0]], [[0, 1], [1, 1]])


class World:
    """Items whose chances in the two arms follow Beta distributions and correlate; seeds shift all of an
    arm's chances.
    """

    def __init__(self, accuracy_a: float, accuracy_b: float, mixed: float, sd: float) -> None:
        grid = (np.arange(4000) + 0.5) / 4000
        self.sd, nodes = sd, hermegauss(31)
        chances = [stats.beta.ppf(grid, m * mixed, (1 - m) * mixed) for m in (accuracy_a, accuracy_b)]
        self.quantiles = [logit(np.clip(p, 1e-12, 1 - 1e-12)) for p in chances]
        self.means = means = [
            (expit(q[:, None] + sd * nodes[0]) @ nodes[1]).mean() / nodes[1].sum() for q in self.quantiles
        ]
        self.delta = means[0] - means[1]

    def studies(
        self, seeds: int, items: int, count: int, correlation: float = 0.8
    ) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays [studies, seeds, items]."""
        rng = np.random.default_rng(items + seeds)
        shared, outcomes = rng.standard_normal((count, 1, items)), []
        for quantiles in self.quantiles:
            independent = rng.standard_normal((count, 1, items))
            place = stats.norm.cdf(correlation**0.5 * shared + (1 - correlation) ** 0.5 * independent)
            level = quantiles[(place * len(quantiles)).astype(int)] + self.sd * rng.standard_normal(
                (count, seeds, 1)
            )
            outcomes.append((rng.random((count, seeds, items)) < expit(level)).astype(float))
        return outcomes[0], outcomes[1]


# Accuracies of treatment and reference, how alike the items are (a small sum of the Beta's parameters is very
# mixed: most are nearly always right or nearly always wrong), and the spread over seeds on the logit scale.
WORLDS = [
    (0.65, 0.65, 1.0, 0.0), (0.65, 0.65, 1.0, 0.2), (0.65, 0.65, 1.0, 0.6), (0.65, 0.6, 0.5, 0.05),
    (0.45, 0.4, 1.0, 0.1),
    (0.95, 0.9, 1.5, 0.2), (0.9, 0.9, 2.0, 0.05), (0.8, 0.7, 2.0, 0.4),
]  # fmt: skip


@pytest.mark.parametrize(("seeds", "items"), [(3, 100), (3, 200), (3, 400), (5, 100), (5, 200), (5, 400)])
def test_clustered_coverage_and_error_rate(seeds: int, items: int) -> None:
    # Every size of study meets two of the worlds; all of them together meet all worlds, all but four of them
    # twice.
    at = [(3, 100), (3, 200), (3, 400), (5, 100), (5, 200), (5, 400)].index((seeds, items))
    for world in (World(*WORLDS[(2 * at + k) % len(WORLDS)]) for k in range(2)):
        a, b = world.studies(seeds, items, STUDIES)
        estimates = [clustered(x, y) for x, y in zip(a, b, strict=True)]
        inside = np.array([c.low <= world.delta <= c.high for c in estimates])
        # With 20,000 studies all lie between 94.8 and 96.4%; the error of 2,000 is half a point.
        assert 0.93 <= inside.mean() <= 0.97
        if world.delta == 0:
            assert 0.03 <= np.mean([c.p < 0.05 for c in estimates]) <= 0.06
        # Nothing but the floors pulls the estimate away from the true variance.
        true = np.var(a.mean(axis=(1, 2)) - b.mean(axis=(1, 2)))
        assert 0.93 <= np.mean([c.se**2 for c in estimates]) / true <= 1.15


@pytest.mark.parametrize(("seeds", "items", "world"), [(3, 200, 1), (5, 100, 3), (3, 100, 7), (5, 200, 5)])
def test_coverage_against_a_fixed_reference(seeds: int, items: int, world: int) -> None:
    # The reference is one model: its seed's shift is the same in every study, and is not counted.
    trained, untrained = World(*WORLDS[world]), World(*WORLDS[world][:3], 0.0)
    a, b = (w.studies(seeds, items, STUDIES)[side] for side, w in enumerate((trained, untrained)))
    truth = trained.means[0] - untrained.means[1]
    estimates = [clustered(x, y[:1], fixed=True) for x, y in zip(a, b, strict=True)]
    assert 0.93 <= np.mean([c.low <= truth <= c.high for c in estimates]) <= 0.98


@settings(max_examples=20)
@given(st.floats(0.3, 0.9), st.integers(2, 4))
def test_more_of_the_same_items_narrow_the_interval(share: float, times: int) -> None:
    rng = np.random.default_rng(round(share * 1000))
    a, b = ((rng.random((1, 40)) < share).astype(float) for _ in range(2))
    short, long = clustered(a, b), clustered(np.tile(a, times), np.tile(b, times))
    assert long.high - long.low < short.high - short.low

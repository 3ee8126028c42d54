"""Compare a treatment with a reference over seeds, and put the verdict into words.

A gain or a loss needs three things: a Holm-corrected Welch p over seeds (other seeds would show it on these
items), a clustered interval without 0 (other items would too: Welch's p alone finds a difference in up to 15%
of studies of two equal methods, since all seeds share the items), and a difference larger than the spread
over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan, sqrt
from typing import Literal

from numpy.typing import ArrayLike

from smopd.formatting import p_value, points
from smopd.study import statistics
from smopd.study.statistics import Clustered, ItemTest, Welch, mean_sd

Names = tuple[str, str]
Verdict = Literal["gain", "loss", "inside run-to-run variation", "no spread over seeds", "single seed"]


@dataclass(frozen=True)
class Comparison:
    """Treatment a against reference b; intervals have level 1 - alpha, numbers the unit of the input."""

    names: Names
    seeds: tuple[int, int]
    items: int | None  # None if only accuracies were given
    mean_a: float
    sd_a: float
    mean_b: float
    sd_b: float
    delta: float
    welch: Welch
    welch_low: float
    welch_high: float
    clustered: Clustered | None
    item_test: ItemTest | None
    run_to_run: float  # standard deviation over seeds, pooled over the arms that have more than one
    # The deciding p after Holm: Welch's two-sided, or the clustered p if no seeds differ.
    p_adjusted: float = nan
    verdict: Verdict = "single seed"
    sentence: str = ""
    alpha: float = 0.05
    family: int = 1  # number of comparisons in the Holm correction
    scale: float = 1.0  # from the unit of the input to a fraction

    @property
    def spreadless(self) -> bool:
        return self.sd_a == self.sd_b == 0


def compare(a: ArrayLike, b: ArrayLike, *, names: Names = ("a", "b"), alpha: float = 0.05) -> Comparison:
    """Compare treatment a with reference b: accuracies by seed, or arrays [seeds, items] on the same items.

    In the sentence, accuracies up to 1 count as fractions, larger ones as percent. Plain accuracies without
    any spread over seeds get no interval and no verdict: equal counts only show that the spread is small.
    """
    x, y = statistics.numbers(a), statistics.numbers(b)
    if x.ndim != y.ndim or x.ndim not in (1, 2):
        shapes = f"found shapes {x.shape} and {y.shape}"
        raise ValueError(f"expected one accuracy a seed or [seeds, items] on both sides, {shapes}")
    known = x.ndim == 2
    seeds_a, seeds_b = (x.mean(axis=1), y.mean(axis=1)) if known else (x, y)
    (mean_a, sd_a), (mean_b, sd_b) = mean_sd(seeds_a), mean_sd(seeds_b)
    result = statistics.welch(seeds_a, seeds_b)
    tests = (result.delta, result, *statistics.welch_interval(seeds_a, seeds_b, 1 - alpha))
    over = (statistics.clustered(x, y, 1 - alpha), statistics.item_test(x, y)) if known else (None, None)
    freedom = len(x) + len(y) - 2
    squares = sum((len(arm) - 1) * sd**2 for arm, sd in ((x, sd_a), (y, sd_b)) if len(arm) > 1)
    run_to_run = sqrt(squares / freedom) if freedom else nan
    seeds, items = (len(x), len(y)), x.shape[1] if known else None
    values = (names, seeds, items, mean_a, sd_a, mean_b, sd_b, *tests, *over, run_to_run)
    scale = 1.0 if max(abs(x).max(), abs(y).max()) <= 1 else 0.01
    return family([replace(Comparison(*values), alpha=alpha, scale=scale)])[0]


def family(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Holm-correct comparisons that are looked at together; those with single seeds do not count."""
    # Welch's two-sided p, or if no seeds differ the clustered p.
    decided = ((one, one.clustered if one.spreadless else None) for one in comparisons)
    p_values = [over_items.p if over_items else one.welch.p_two_sided for one, over_items in decided]
    size, adjusted = sum(not isnan(p) for p in p_values), statistics.holm(p_values)
    return [_judge(one, p, max(size, 1)) for one, p in zip(comparisons, adjusted, strict=True)]


def _judge(one: Comparison, p: float, size: int) -> Comparison:
    """Add verdict and sentence, which says why if a small p was not enough."""
    verdict: Verdict = "inside run-to-run variation"
    reason = ""
    if min(one.seeds) < 2:
        verdict, reason = "single seed", "it cannot be told from run-to-run variation"
    elif one.clustered is None and one.spreadless:
        verdict, reason = "no spread over seeds", "nothing to judge by"
    elif not p < one.alpha:
        pass
    elif one.clustered and one.clustered.low <= 0 <= one.clustered.high:
        reason = "the interval over seeds and items holds 0"
    elif not abs(one.delta) > one.run_to_run:
        reason = "smaller than the spread over seeds"
    else:
        verdict = "gain" if one.delta > 0 else "loss"
    judged = replace(one, p_adjusted=p, verdict=verdict, family=size)
    return replace(judged, sentence=_sentence(judged, reason))


def _sentence(one: Comparison, reason: str) -> str:
    single = min(one.seeds) < 2
    low, high = (one.clustered.low, one.clustered.high) if one.clustered else (one.welch_low, one.welch_high)
    text = f"{one.names[0]} against {one.names[1]}: {points(one.delta * one.scale)} points"
    if not isnan(low):
        text += f" [{points(low * one.scale)}, {points(high * one.scale)}]"
        text += (" over items alone" if single else " over seeds and items") if one.clustered else ""
    n_a, n_b = one.seeds
    counts = ("1 seed each" if single else f"{n_a} seeds each") if n_a == n_b else f"{n_a} and {n_b} seeds"
    text += f", {counts}" + (f" on {one.items} items" if one.items else "")
    if not isnan(one.p_adjusted):
        test = "clustered" if one.spreadless else "Welch"
        text += f", p {p_value(one.p_adjusted)} ({test}{f', Holm of {one.family}' if one.family > 1 else ''})"
    elif one.item_test:
        text += f", p {p_value(one.item_test.p)} over items ({one.item_test.test.split(',')[0]})"
    return f"{text}: {one.verdict}" + (f" ({reason})" if reason else "")

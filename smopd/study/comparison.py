"""A treatment against a reference over seeds, with the words to say about it.

Two questions are asked, and a gain or a loss needs a yes to both, and a difference larger than the spread
over seeds. Welch's test over seeds: would other seeds show it again on these items? Its p decides, and Holm
corrects it over a family: it asks for one accuracy a seed and nothing else, so every study has it and a
reader can repeat it. The clustered interval: would other items show it too? Welch's p alone finds a
difference in up to 15% of studies of two equal methods, as all seeds share the luck of the items. With a
single seed on a side nothing is called a gain or a loss. It leaves out paired seeds and what a study's
tables look like.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan, nan, sqrt
from typing import Any, Literal

from numpy.typing import ArrayLike

from smopd.formatting import p_value, points
from smopd.study.statistics import (
    Clustered,
    ItemTest,
    Welch,
    clustered,
    holm,
    item_test,
    mean_sd,
    numbers,
    welch_interval,
)
from smopd.study.statistics import welch as welch_test

Names = tuple[str, str]
Verdict = Literal["gain", "loss", "inside run-to-run variation", "single seed"]


@dataclass(frozen=True)
class Comparison:
    """Treatment a against reference b; intervals are of level 1 - alpha, numbers in the unit they came in."""

    names: Names
    seeds: tuple[int, int]
    items: int | None  # None where only accuracies were given
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
    # What decides: Welch's two-sided p (without spread over seeds the clustered p, or 1), after Holm.
    p_adjusted: float
    verdict: Verdict
    sentence: str
    alpha: float = 0.05
    family: int = 1  # comparisons it was corrected for
    scale: float = 1.0  # to a fraction, for words

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON; what is not a finite number is None."""
        return {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__ if name != "scale"}


def compare(a: ArrayLike, b: ArrayLike, *, names: Names = ("a", "b"), alpha: float = 0.05) -> Comparison:
    """Compare treatment a with reference b: one accuracy a seed, or arrays [seeds, items] on the same items.

    Accuracies of 1 and less are read as fractions, larger ones as percent; that only matters for the
    sentence. Accuracies alone that have no spread over seeds in either arm are never a gain or a loss: they
    are counts, so equal ones only say that the spread was too small for these seeds to show.
    """
    x, y = numbers(a), numbers(b)
    if x.ndim != y.ndim or x.ndim not in (1, 2):
        shapes = f"found shapes {x.shape} and {y.shape}"
        raise ValueError(f"expected one accuracy a seed or [seeds, items] on both sides, {shapes}")
    known = x.ndim == 2
    over_both = clustered(x, y, 1 - alpha) if known else None
    over_items = item_test(x, y) if known else None
    seeds_a, seeds_b = (x.mean(axis=1), y.mean(axis=1)) if known else (x, y)
    (mean_a, sd_a), (mean_b, sd_b) = mean_sd(seeds_a), mean_sd(seeds_b)
    result = welch_test(seeds_a, seeds_b)
    low, high = welch_interval(seeds_a, seeds_b, 1 - alpha)
    freedom = len(x) + len(y) - 2
    squares = sum((len(arm) - 1) * sd**2 for arm, sd in ((x, sd_a), (y, sd_b)) if len(arm) > 1)
    made = Comparison(
        names=names,
        seeds=(len(x), len(y)),
        items=x.shape[1] if known else None,
        mean_a=mean_a,
        sd_a=sd_a,
        mean_b=mean_b,
        sd_b=sd_b,
        delta=result.delta,
        welch=result,
        welch_low=low,
        welch_high=high,
        clustered=over_both,
        item_test=over_items,
        run_to_run=sqrt(squares / freedom) if freedom else nan,
        p_adjusted=nan,
        verdict="single seed",
        sentence="",
        alpha=alpha,
        scale=1.0 if max(abs(x).max(), abs(y).max()) <= 1 else 0.01,
    )
    return _judged(made, _deciding(made), 1)


def family(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons, corrected after Holm for being looked at together; single seeds don't count."""
    p_values = [_deciding(one) for one in comparisons]
    size = sum(not isnan(p) for p in p_values)
    return [_judged(one, p, max(size, 1)) for one, p in zip(comparisons, holm(p_values), strict=True)]


def _deciding(one: Comparison) -> float:
    """Welch's two-sided p, or the clustered p, or 1: without spread Welch's is a 0 made out of nothing."""
    if _spreadless(one):
        return one.clustered.p if one.clustered else 1.0
    return one.welch.p_two_sided


def _spreadless(one: Comparison) -> bool:
    return one.sd_a == one.sd_b == 0


def _judged(one: Comparison, p: float, size: int) -> Comparison:
    verdict, reason = _verdict(one, p)
    judged = replace(one, p_adjusted=p, verdict=verdict, family=size)
    return replace(judged, sentence=_sentence(judged, reason))


def _verdict(one: Comparison, p: float) -> tuple[Verdict, str]:
    """The verdict, and the reason where a small p was not enough."""
    if min(one.seeds) < 2:
        return "single seed", "it cannot be told from run-to-run variation"
    reason = ""
    if one.clustered is None and _spreadless(one):
        reason = "no spread over seeds to judge by" if one.delta else ""
    elif not p < one.alpha:
        pass
    elif one.clustered and one.clustered.low <= 0 <= one.clustered.high:
        reason = "the interval over seeds and items holds 0"
    elif not abs(one.delta) > one.run_to_run:
        reason = "smaller than the spread over seeds"
    else:
        return ("gain" if one.delta > 0 else "loss"), ""
    return "inside run-to-run variation", reason


def _sentence(one: Comparison, reason: str) -> str:
    single = min(one.seeds) < 2
    low, high = (one.clustered.low, one.clustered.high) if one.clustered else (one.welch_low, one.welch_high)
    text = f"{one.names[0]} against {one.names[1]}: {points(one.delta * one.scale)} points"
    nothing = one.clustered is None and _spreadless(one)  # to make an interval or a p of
    if not (isnan(low) or nothing):
        text += f" [{points(low * one.scale)}, {points(high * one.scale)}]"
        text += (" over items alone" if single else " over seeds and items") if one.clustered else ""
    n_a, n_b = one.seeds
    counts = ("1 seed each" if single else f"{n_a} seeds each") if n_a == n_b else f"{n_a} and {n_b} seeds"
    text += f", {counts}" + (f" on {one.items} items" if one.items else "")
    if nothing:
        pass
    elif not single:
        test = "clustered" if _spreadless(one) else "Welch"
        text += f", p {p_value(one.p_adjusted)} ({test}{f', Holm of {one.family}' if one.family > 1 else ''})"
    elif one.item_test:
        text += f", p {p_value(one.item_test.p)} over items ({one.item_test.test.split(',')[0]})"
    return f"{text}: {one.verdict}" + (f" ({reason})" if reason else "")


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value

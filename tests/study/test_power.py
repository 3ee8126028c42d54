"""What a design can detect, against statsmodels where that holds and against simulated studies everywhere."""

from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from statsmodels.stats.power import TTestIndPower, TTestPower

from smopd.study.comparison import compare
from smopd.study.statistics import Options, clustered, design, detectable, power_of, sentence

STUDIES = 2_000


class World:
    """Chances that add up: an item's, the arm's own of an item (item x arm), a seed's; so every spread is
    known exactly.
    """

    def __init__(self, seed_level: float, interaction: float) -> None:
        self.level, self.interaction = seed_level, interaction
        grid = np.linspace(0.3, 0.6, 1001)
        # A run is right or wrong around its chance: the noise is the mean of chance * (1 - chance) over
        # items, seeds and arms.
        self.noise = sqrt((grid * (1 - grid)).mean() - (interaction / 2) ** 2 - seed_level**2)
        self.discordance = interaction / sqrt(
            2
        )  # the arms' own parts are +- interaction / 2, independent of each other

    def spreads(self, items: int) -> Options:
        seed_sd = sqrt(self.level**2 + self.noise**2 / items)
        return {"seed_sd": seed_sd, "discordance": self.discordance, "noise": self.noise}

    def studies(self, seeds: int, items: int, effect: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        rng, outcomes = np.random.default_rng([seeds, items]), []
        chances = rng.uniform(0.3, 0.6, (count, 1, items))
        for shift in (effect / 2, -effect / 2):
            item_by_arm = rng.choice((-self.interaction / 2, self.interaction / 2), (count, 1, items))
            seed = rng.normal(0, self.level, (count, seeds, 1))
            outcomes.append(
                (rng.random((count, seeds, items)) < chances + item_by_arm + seed + shift).astype(float)
            )
        return outcomes[0], outcomes[1]


@pytest.mark.parametrize(
    ("seeds", "items", "level", "interaction"),
    [
        (2, 200, 0.01, 0.3),
        (3, 100, 0.0, 0.4),
        (3, 200, 0.02, 0.1),
        (3, 400, 0.04, 0.3),
        (5, 200, 0.0, 0.4),
        (5, 400, 0.03, 0.2),
    ],
)
def test_power_at_the_detectable_effect(seeds: int, items: int, level: float, interaction: float) -> None:
    world = World(level, interaction)
    spreads = world.spreads(items)
    effect = detectable(items, seeds, **spreads)
    a, b = world.studies(seeds, items, effect, STUDIES)
    detected = [clustered(x, y).p < 0.05 for x, y in zip(a, b, strict=True)]
    assert np.mean(detected) == pytest.approx(0.8, abs=0.04)  # 0.009 of it is the error of 2,000 studies


def test_power_of_one_seed_and_of_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(0.0, 0.3)
    effect = detectable(200, 1, **world.spreads(200))
    a, b = world.studies(1, 200, effect, STUDIES)
    assert np.mean([clustered(x, y).p < 0.05 for x, y in zip(a, b, strict=True)]) == pytest.approx(
        0.8, abs=0.04
    )
    monkeypatch.setattr(
        "smopd.study.statistics.paired_bootstrap", lambda before, after: (0.0, 0.0, 1.0)
    )  # slow, no part of it
    world = World(0.02, 0.3)
    effect = detectable(200, 3, **world.spreads(200), verdict=True)
    assert effect > detectable(200, 3, **world.spreads(200))
    a, b = world.studies(3, 200, effect, STUDIES)
    assert np.mean([compare(x, y).verdict == "gain" for x, y in zip(a, b, strict=True)]) == pytest.approx(
        0.8, abs=0.04
    )


def test_against_statsmodels_where_one_source_of_chance_is_left() -> None:
    # Many seeds and no differences between items: Student's test of two groups.
    theirs = TTestIndPower().solve_power(nobs1=40, alpha=0.05, power=0.8) * 0.02
    assert detectable(100_000, 40, seed_sd=0.02, discordance=0.0, noise=0.0) == pytest.approx(
        theirs, rel=0.01
    )
    # One seed: Student's test of the items' differences.
    theirs = TTestPower().solve_power(nobs=150, alpha=0.05, power=0.8) * sqrt(0.4**2 + 2 * 0.3**2)
    assert detectable(150, 1, seed_sd=0.0, discordance=0.4, noise=0.3) == pytest.approx(theirs, rel=0.01)
    # No spread over seeds at all: the items again, as many as they are.
    known = 0.3 / 100 * (norm.ppf(0.975) + norm.ppf(0.8))
    assert detectable(10_000, 5, seed_sd=0.0, discordance=0.3) == pytest.approx(known, rel=0.01)


spreads = st.fixed_dictionaries(
    {"seed_sd": st.floats(0.001, 0.05), "discordance": st.floats(0.0, 0.5), "noise": st.floats(0.0, 0.5)}
)


@settings(max_examples=20)
@given(st.integers(10, 1000), st.integers(1, 8), spreads, st.sampled_from((0.5, 0.8, 0.95)))
def test_detectable_and_power_are_inverse_and_grow(
    items: int, seeds: int, spread: dict[str, Any], power: float
) -> None:
    effect = detectable(items, seeds, **spread, power=power)
    assert power_of(items, seeds, effect, **spread) == pytest.approx(power, abs=1e-4)
    assert power_of(items, seeds, -effect, **spread) == pytest.approx(power, abs=1e-4)
    assert power_of(items, seeds, 1.5 * effect, **spread) > power
    assert power_of(items, seeds, 0.0, **spread) < 0.1
    if seeds > 1:
        assert detectable(items, seeds + 1, **spread, power=power) < effect
        assert detectable(items, seeds, **spread, power=power, alpha=0.01) > effect
        assert detectable(items, seeds, **spread, power=power, verdict=True) >= effect
        wider = spread | {"seed_sd": max(2 * spread["seed_sd"], 2 * spread["noise"] / sqrt(items))}
        assert detectable(items, seeds, **wider, power=power) >= effect


def test_a_design_is_estimated_without_bias() -> None:
    world = World(0.03, 0.4)
    a, b = world.studies(4, 300, 0.05, 300)
    designs = [design(x, y) for x, y in zip(a, b, strict=True)]
    assert {one.items for one in designs} == {300}
    for name, value in world.spreads(300).items():
        assert np.sqrt(np.mean([getattr(one, name) ** 2 for one in designs])) == pytest.approx(
            value, rel=0.05
        )


def test_a_design_needs_two_seeds_an_arm() -> None:
    with pytest.raises(ValueError, match="two seeds"):
        design([[1, 0]], [[0, 1]])


def test_without_noise_all_of_the_spread_is_noise() -> None:
    for seeds in (1, 3):
        most = detectable(200, seeds, seed_sd=0.02, discordance=0.3, noise=0.02 * sqrt(200))
        assert detectable(200, seeds, seed_sd=0.02, discordance=0.3) == pytest.approx(most)


def test_sentences() -> None:
    text = sentence(200, 3, seed_sd=0.006, discordance=0.1)
    points = 100 * detectable(200, 3, seed_sd=0.006, discordance=0.1)
    shown = float(text.split("detect ")[1].split()[0])
    assert points <= shown < points + 0.1  # rounded up
    assert (
        text == f"With 200 items and 3 seeds an arm you can detect {shown} points (power 80%, two-sided 5%)"
    )
    one = sentence(200, 1, seed_sd=0.006, discordance=0.1, power=0.9, alpha=0.01)
    assert "1 seed an arm" in one
    assert "(power 90%, two-sided 1%)" in one
    assert one.endswith("run-to-run variation is not covered")
    assert "no difference can be detected" in sentence(10, 2, seed_sd=0.5, discordance=0.5)


@pytest.mark.parametrize(
    "change",
    [{"items": 1}, {"seeds": 0}, {"seed_sd": -0.1}, {"discordance": float("nan")}, {"noise": float("inf")},
     {"alpha": 0.0}, {"power": 1.0}, {"power": 0.01}, {"seeds": 1, "verdict": True}],
)  # fmt: skip
def test_designs_that_make_no_sense(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"items": 100, "seeds": 3, "seed_sd": 0.01, "discordance": 0.2}
    with pytest.raises(ValueError):
        detectable(**good | change)

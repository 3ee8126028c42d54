"""The tables of a study: every number equals one computed here with numpy and scipy, knows its runs, and is
called what it is.

It leaves out the statistics themselves (test_statistics.py) and the forms of a report (test_report.py).
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.synthetic_study import HOSTILE, study

from smopd.study.results import DIGITS, Cell, Results
from smopd.study.statistics import clustered
from smopd.study.table_parts import VERDICTS, StudyTable, TableBuilder, TableNumber, plain, point_label
from smopd.study.tables import comparison_sentences, make_tables, verdict_lines

ARMS = dict(
    zip(
        ("base line", "a", "b", "c", "d", "e", "f", "g"),
        (0.5, 0.64, 0.5, 0.36, 0.52, 0.48, 0.55, 0.5),
        strict=True,
    )
)


def numbers(results: Results) -> dict[str, TableNumber]:
    """Every number by its id, which must not name two."""
    by_id: dict[str, TableNumber] = {}
    for table in make_tables(TableBuilder(results)):
        for number in table.numbers():
            assert by_id.setdefault(number.id, number) == number
    return by_id


def findings(results: Results) -> list[str]:
    return verdict_lines(TableBuilder(results), results.missing)


def named(results: Results) -> dict[str, StudyTable]:
    return {table.name: table for table in make_tables(TableBuilder(results))}


def scores(cells: list[Cell], view: str, runs: int = 1) -> np.ndarray:
    return np.array([[DIGITS.index(digit) / runs for digit in cell.right[view]] for cell in cells])


def folders(cells: list[Cell]) -> tuple[str, ...]:
    return tuple(cell.source.folder for cell in cells)


def check(results: Results) -> None:
    """Accuracies, gaps, tests and intervals of every arm, computed anew."""
    by_id = numbers(results)
    assert all(
        set(n.sources) <= set(folders([*results.base, *results.cells])) and n.sources
        for n in by_id.values()
        if n.value
    )
    for model in results.models:
        for point in results.points():
            where = f"{model.replace('/', '%2F')}/" + (
                point_label(point).replace(" = ", "=").replace(", ", ",") + "/"
            ) * bool(point)
            for arm in results.arms:
                cells = [c for c in results.cells if (c.model, c.axes, c.arm) == (model, point, arm)]
                arm_path = f"{where}{arm}/"
                assert by_id[f"main/{arm_path}seeds"].value == len(cells)
                for view in results.views if cells else ():
                    means = scores(cells, view, results.runs).mean(axis=1)
                    same(
                        by_id[f"main/{arm_path}{view}/mean"],
                        means.mean(),
                        f"{100 * means.mean():.1f}",
                        folders(cells),
                    )
                    if len(cells) > 1:
                        same(
                            by_id[f"main/{arm_path}{view}/sd"],
                            means.std(ddof=1),
                            f"{100 * means.std(ddof=1):.1f}",
                            folders(cells),
                        )
                    for cell, mean in zip(cells, means, strict=True):
                        same(
                            by_id[f"per-seed/{arm_path}{cell.seed}/{view}/mean"],
                            mean,
                            f"{100 * mean:.1f}",
                            folders([cell]),
                        )
                if cells and {"full", "sharded"} <= set(results.views):
                    full, sharded = (
                        scores(cells, view, results.runs).mean(axis=1) for view in ("full", "sharded")
                    )
                    same(
                        by_id[f"main/{arm_path}gap/mean"],
                        (full - sharded).mean(),
                        f"{100 * (full - sharded).mean():.1f}",
                        folders(cells),
                    )
                reference = [
                    c for c in results.cells if (c.model, c.axes, c.arm) == (model, point, results.reference)
                ]
                if arm != results.reference and cells and reference:
                    check_tests(results, by_id, arm_path, cells, reference)


def check_tests(
    results: Results, by_id: dict[str, TableNumber], arm_path: str, cells: list[Cell], reference: list[Cell]
) -> None:
    primary = "sharded" if "sharded" in results.views else results.views[0]
    for view in results.views:
        a, b = (scores(some, view, results.runs) for some in (cells, reference))
        effects = "main" if view == primary else f"effects-{view}"
        delta = a.mean() - b.mean()
        for table in (effects, f"seeds-{view}"):
            same(
                by_id[f"{table}/{arm_path}{view}/delta"],
                delta,
                f"{100 * delta:+.1f}",
                folders([*cells, *reference]),
            )
        ahead = int((a.mean(axis=0) > b.mean(axis=0) + 1e-9).sum())
        behind = int((b.mean(axis=0) > a.mean(axis=0) + 1e-9).sum())
        assert by_id[f"items-{view}/{arm_path}{view}/became-right"].value == ahead
        assert by_id[f"items-{view}/{arm_path}{view}/became-wrong"].value == behind
        exact = stats.binomtest(ahead, ahead + behind).pvalue if ahead + behind else 1.0
        assert by_id[f"items-{view}/{arm_path}{view}/p"].value == pytest.approx(exact)
        p = by_id[f"{effects}/{arm_path}{view}/p"]
        if min(len(a), len(b)) < 2:
            assert (p.value, p.text) == (None, "n/a")
            continue
        welch = stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False)
        above = stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False, alternative="greater")
        test = f"seeds-{view}/{arm_path}{view}/"
        for key, value in (
            ("t", welch.statistic),
            ("df", welch.df),
            ("p", welch.pvalue),
            ("p-one-sided", above.pvalue),
        ):
            assert by_id[test + key].value == pytest.approx(value)
        assert p.value == pytest.approx(welch.pvalue)
        low, high = welch.confidence_interval(0.95)
        assert (by_id[test + "low"].value, by_id[test + "high"].value) == (
            pytest.approx(low),
            pytest.approx(high),
        )
        pooled = np.sqrt(
            ((len(a) - 1) * a.mean(axis=1).var(ddof=1) + (len(b) - 1) * b.mean(axis=1).var(ddof=1))
            / (len(a) + len(b) - 2)
        )
        assert by_id[test + "run-to-run"].value == pytest.approx(pooled)


def same(number: TableNumber, value: float, text: str, sources: tuple[str, ...]) -> None:
    assert number.value == pytest.approx(value, abs=1e-12)
    # Halves are rounded away from zero, which the text computed in the test does not always do.
    assert number.text == text or abs(float(number.text) - 100 * value) <= 0.05 + 1e-9
    assert number.sources == sources


@pytest.mark.parametrize(
    "results",
    [
        study(ARMS),
        study(ARMS, seeds=[42]),
        study({"baseline": 0.5, "entropy": 0.6}, models=["pocket", "Qwen/Qwen3-4B", "Qwen/Qwen3-8B"]),
        study({"baseline": 0.5, "entropy": 0.6}, axes={"train.steps": [20, 40], "mask": ["x", None]}),
        study(ARMS, missing=[("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 5), ("base line", 2)]),
        study(ARMS, missing=[("c", seed) for seed in range(1, 6)]),
        study(ARMS, views=["concat"]),
        study(ARMS, runs=10, items=40),
    ],
    ids=[
        "eight arms",
        "one seed",
        "three models",
        "axes",
        "missing",
        "an arm missing",
        "another view",
        "ten runs",
    ],
)
def test_every_number_is_what_numpy_and_scipy_say(results: Results) -> None:
    check(results)


def test_adjusted_p_is_holms_over_the_whole_family() -> None:
    results = study(
        ARMS, models=["m", "n"], axes={"x": [1, 2]}, missing=[("g", seed) for seed in (2, 3, 4, 5)]
    )
    by_id = numbers(results)
    for view, table in (("sharded", "main"), ("full", "effects-full")):
        raw = {
            i.removesuffix("/p"): n.value
            for i, n in by_id.items()
            if i.startswith(table) and i.endswith(f"/{view}/p")
        }
        known = sorted((p, name) for name, p in raw.items() if p is not None)
        assert len(known) == 6 * 4  # one seed of g: no p
        reached = 0.0
        for rank, (p, name) in enumerate(known):
            reached = max(reached, min(1.0, p * (len(known) - rank)))
            assert by_id[f"{name}/p-holm"].value == pytest.approx(reached)
    assert "all 24 comparisons" in named(results)["main"].caption


def test_clustered_interval_and_power_are_there() -> None:
    results = study(ARMS)
    by_id, effects = numbers(results), TableBuilder(results).effects
    for place, one in effects["sharded"].items():
        path = f"main/pocket/{place.arm}/sharded/"
        assert one.clustered is not None
        assert (by_id[path + "low"].value, by_id[path + "high"].value) == (
            one.clustered.low,
            one.clustered.high,
        )
    for view in results.views:
        assert by_id[f"power/pocket/{view}/seeds"].value == 5
        alone, corrected = (
            by_id[f"power/pocket/{view}/detectable{end}"].value or 0 for end in ("", "-family")
        )
        assert 0 < alone < corrected
        assert by_id[f"power/pocket/{view}/seed-sd"].value == pytest.approx(
            np.sqrt(np.mean([(one.sd_a**2 + one.sd_b**2) / 2 for one in effects[view].values()]))
        )
    lines = findings(results)
    assert (
        sum("you can detect" in line and "seed sd" in line and "discordance" in line for line in lines) == 2
    )


def test_base_model_is_the_first_row_and_outside_the_family() -> None:
    results = study(ARMS)
    first, second = named(results)["main"].rows[:2]
    assert first.label == "base model"
    assert first.cells[-1] == ("not trained",)
    assert second.cells[-1] == ("reference",)
    assert numbers(results)["base/pocket/full/mean"].value == pytest.approx(
        scores(results.base, "full").mean()
    )
    assert not any(
        "base" in place.arm for place in TableBuilder(results).effects["full"] if place.arm != "base line"
    )


def test_what_training_changed() -> None:
    results = study(ARMS, missing=[("b", seed) for seed in (2, 3, 4, 5)])
    by_id, table = numbers(results), named(results)["changes"]
    assert [row.label for row in table.rows] == results.arms
    deltas = {}
    for arm in results.arms:
        cells = results.group("pocket", arm)
        for view in results.views:
            a, base = (scores(some, view) for some in (cells, results.base))
            delta, low, high = (
                by_id[f"changes/pocket/{arm}/{view}/{end}"] for end in ("delta", "low", "high")
            )
            same(
                delta,
                a.mean() - base.mean(),
                f"{100 * (a.mean() - base.mean()):+.1f}",
                folders([*cells, *results.base]),
            )
            theirs = clustered(a, base, fixed=True)
            assert (low.value, high.value) == pytest.approx((theirs.low, theirs.high))
            deltas[arm, view] = a.mean() - base.mean()
    line = next(line for line in findings(results) if line.startswith("SHARDED, against the model before"))
    least, most = (pick(ARMS, key=lambda arm: deltas[arm, "sharded"]) for pick in (min, max))
    assert line.index(f"({least})") < line.index(" to ") < line.index(f"({most})")
    assert "changes" not in named(replace(results, base=[]))


def test_an_arm_called_base_is_not_the_base_model() -> None:
    by_id = numbers(study({"base": 0.5, "x": 0.6}))
    assert by_id["base/pocket/full/mean"] != by_id["main/pocket/base/full/mean"]


def test_single_seeds_are_labelled_wherever_a_difference_stands() -> None:
    results = study(ARMS, missing=[("a", seed) for seed in (2, 3, 4, 5)], paper="ablation")
    for table in make_tables(TableBuilder(results)):
        if table.name.startswith(("main", "effects", "seeds", "items")):
            (row,) = [row for row in table.rows if row.label == "a"]
            assert row.cells[-1] == ("single seed",)
    assert any("single seed" in line and "a +" in line for line in findings(results))


def test_missing_cells_are_named() -> None:
    results = study(ARMS, missing=[("c", seed) for seed in range(1, 6)] + [("d", 3)])
    rows = {row.label: row for row in named(results)["main"].rows}
    assert rows["c"].cells[-1] == ("no result",)
    assert [part if isinstance(part, str) else part.text for part in rows["d"].cells[0]] == ["4", " of 5"]
    (line,) = [line for line in findings(results) if line.startswith("No result yet")]
    assert all(name in line for name in results.missing)
    without = study(ARMS, missing=[("base line", seed) for seed in range(1, 6)])
    assert {row.cells[-1] for row in named(without)["main"].rows[2:]} == {("no reference result",)}
    assert "No arm has been compared with base line." in findings(without)


def test_measurements_are_means_over_seeds() -> None:
    results = study(ARMS, measured=True)
    by_id = numbers(results)
    for arm in results.arms:
        cells = results.group("pocket", arm)
        for table, key, values in (
            ("calibration", "auroc", [c.tokens["auroc"] for c in cells if c.tokens]),
            ("calibration", "tokens", [c.tokens["tokens"] for c in cells if c.tokens]),
            ("gradients", "cosine", [c.gradients["cosine"] for c in cells if c.gradients]),
            ("bins", "0.3-0.4/teacher", [c.tokens["bins"][3]["teacher"] for c in cells if c.tokens]),
        ):
            mean, sd = (by_id[f"{table}/pocket/{arm}/{key}/{end}"] for end in ("mean", "sd"))
            assert mean.value == pytest.approx(np.mean(values))
            assert sd.value == pytest.approx(np.std(values, ddof=1))
            assert mean.sources == folders(cells)
        assert f"calibration/pocket/{arm}/divergence_dropped/mean" not in by_id
    shown = [plain(value) for value in (0.12345, 1234.5, 0.00012345, 0.0, float("nan"))]
    assert shown == ["0.123", "1,234", "0.00012", "0.000", "n/a"]


def test_beside_the_paper() -> None:
    arms = {"baseline": 0.5, "entropy": 0.6, "combined": 0.5, "own": 0.5}
    results = study(arms, models=["Qwen/Qwen3-4B"], paper="multi-seed")
    table, by_id = named(results)["paper"], numbers(results)
    assert [row.label for row in table.rows] == ["baseline"] * 2 + ["entropy"] * 2 + [
        "combined"
    ] * 2  # the paper has no "own"
    printed = {(row.label, row.cells[0]): (row.cells[2], row.cells[4], row.cells[-1]) for row in table.rows}
    assert printed["entropy", "SHARDED"] == ("65.8", "+1.7", "4B, 100 steps: Table 5, +entropy")
    assert printed["entropy", "FULL"][1] == "+1.5"  # of the printed accuracies, 79.7 less 78.2
    path = "paper/Qwen%2FQwen3-4B/entropy/sharded/"
    apart, ours = by_id[path + "4b-100/less-paper"], by_id[path + "delta"]
    assert apart.value == pytest.approx((ours.value or 0) - 0.017)
    assert {part for row in table.rows for part in row.cells[6] if row.label == "entropy"} <= set(VERDICTS)
    assert "paper" not in named(study(arms))
    assert "paper" not in named(
        study(arms, models=["Qwen/Qwen3-8B"], paper="multi-seed")
    )  # which the paper has, but not there
    other = named(study(arms, models=["pocket"], paper="cross-scale"))["paper"]
    assert {str(row.cells[-1])[:2] for row in other.rows if row.label == "entropy"} == {"1.", "4B", "8B"}
    sweep = study(
        {"baseline": 0.5},
        models=["Qwen/Qwen3-1.7B"],
        axes={"train.steps": [100, 200, 250]},
        paper="step-sweep",
    )
    assert [row.cells[2] for row in named(sweep)["paper"].rows] == ["76.5", "66.5", "76.5", "68.5"]


def test_a_single_item_and_a_lone_arm_do_not_break_it() -> None:
    assert named(study({"r": 0.5, "x": 0.5}, items=1))["main"].rows
    alone = study({"r": 0.5}, seeds=[1, 2])
    assert set(named(alone)) == {"main", "changes", "per-seed"}
    assert all("before training" in line for line in findings(alone))
    assert len(findings(alone)) == 2
    check(alone)
    assert named(replace(study(ARMS), base=[], cells=[]))["main"].rows


def test_hostile_names_keep_their_ids_apart() -> None:
    results = study(dict.fromkeys(HOSTILE, 0.5), models=["a/b", "a%2Fb"], axes={"k": ["1,k=2", "x"]})
    assert len(numbers(results)) > 500


@settings(max_examples=25)
@given(data=st.data())
def test_only_a_gain_is_called_one(data: Any) -> None:
    """Arms have names that occur nowhere else; wherever a row or a sentence names one, it says what its
    verdict is.
    """
    count = data.draw(st.integers(2, 4))
    chances = {f"arm{i}x": data.draw(st.floats(0.2, 0.8)) for i in range(count)}
    seeds = list(range(data.draw(st.integers(1, 4))))
    missing = data.draw(
        st.lists(st.tuples(st.sampled_from(list(chances)), st.sampled_from(seeds)), max_size=3, unique=True)
    )
    axes = {"steps": [1, 2]} if data.draw(st.booleans()) else None
    results = study(
        chances, seeds=seeds, missing=missing, items=20, axes=axes, number=data.draw(st.integers(0, 99))
    )
    effects = TableBuilder(results).effects
    for view, by_place in effects.items():
        shown = [
            line
            for line in findings(results)
            if line.startswith(view.upper()) and "power" not in line and "before training" not in line
        ]
        shown += [line for line in comparison_sentences(TableBuilder(results)) if f"{view.upper()}:" in line]
        for place, one in by_place.items():
            label = f"{place.arm} (pocket, {place.point})" if axes else f"{place.arm} "
            for line in shown:
                if label in line or (f"{place.arm} against" in line and place.point in line):
                    for word in ("gain", "loss"):
                        assert bool(re.search(rf"\b{word}", line)) == (one.verdict == word), line
    for table in make_tables(TableBuilder(results)):
        for row in table.rows:
            text = " ".join(
                part if isinstance(part, str) else part.text for entry in row.cells for part in entry
            )
            assert "gain" not in f"{row.label} {text}".replace("against", "") or row.cells[-1] == ("gain",)
        assert "gain" not in " ".join([table.title, table.caption, *table.heads]).replace("against", "")

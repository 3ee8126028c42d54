"""From a study's results to its tables, in which every number knows its runs, and to the sentences that sum
it up.

A difference is called a gain or a loss only where `compare` calls it one, corrected for all comparisons of
its view. It leaves out how a table looks (render_html.py, render_text.py), the statistics (comparison.py,
power.py), and what tables_more.py has.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from smopd.formatting import p_value, points
from smopd.study.comparison import Comparison
from smopd.study.power import Design, design, detectable, sentence
from smopd.study.results import Cell, Results
from smopd.study.table_parts import (
    EMPTY,
    VERDICTS,
    Effects,
    Entry,
    Maker,
    Number,
    Path,
    Place,
    Row,
    Table,
    compare_all,
    grid,
    ordered_views,
    slug,
    with_view,
)
from smopd.study.tables_more import calibration_tables, gradient_table, paper_table

__all__ = [
    "VERDICTS",
    "Entry",
    "Number",
    "Row",
    "Table",
    "compare_all",
    "comparison_sentences",
    "make_tables",
    "verdict_lines",
]

LEVEL = 0.05
MANY = 8  # arms that one sentence can tell in full
DIFFERENCE = ("95% interval", "p", "p, Holm", "verdict")  # what stands beside a difference
Entries = Callable[[Comparison, Path, list[Cell]], list[Entry]]


def make_tables(results: Results, effects: Effects | None = None) -> list[Table]:
    """Every table of the report, in order; one that has nothing to show is left out."""
    make, views = Maker(results, effects), ordered_views(results)
    made = [main_table(make), *(effects_table(make, view) for view in views[1:])]
    made += [table for view in views for table in (seed_tests(make, view), item_tests(make, view))]
    made += [
        power_table(make),
        paper_table(make),
        *calibration_tables(make),
        gradient_table(make),
        per_seed(make),
    ]
    return [table for table in made if table.rows]


def main_table(make: Maker) -> Table:
    """The base model and every arm: accuracies, and the difference from the reference on the primary view."""
    r, rows = make.results, []
    for model in r.models:
        for point in r.points():
            group = make.group(model, point)
            base = [cell for cell in r.base if cell.model == model and cell.axes in ({}, point)]
            if base:
                shown = make.accuracies(["base", model], base)
                rows.append(
                    Row("base model", (EMPTY, *shown, EMPTY, EMPTY, EMPTY, EMPTY, ("not trained",)), group)
                )
            for arm in r.arms:
                path, cells = make.path("main", model, point, arm), r.group(model, arm, point)
                seeds = make.number([*path, "seeds"], len(cells), str(len(cells)), cells)
                of = f" of {len(r.seeds)}" if len(cells) < len(r.seeds) else ""
                entries = [(seeds, of) if of else (seeds,), *make.accuracies(path, cells)]
                rows.append(
                    Row(arm, (*entries, *make.difference("main", model, point, arm, make.primary)), group)
                )
    heads = ["arm", "seeds", *make.accuracy_heads(), f"{make.primary.upper()} difference", *DIFFERENCE]
    caption = (
        f"Mean ± sample standard deviation over seeds. Differences from {r.reference} in percentage points, with an "
        "interval over seeds and items (over items alone for a single seed); p: Welch's test over seeds, two-sided; Holm:"
        f" corrected for {_family(make, make.primary)}, to which the base model does not belong."
    )
    return Table(
        "main", "Results", "Base model and arms", caption, tuple(heads), tuple(rows), (len(heads) - 1,)
    )


def effects_table(make: Maker, view: str) -> Table:
    """The differences on another view."""
    name, r = f"effects-{slug(view)}", make.results
    rows = [
        Row(arm, tuple(make.difference(name, model, point, arm, view)), make.group(model, point))
        for model, point, arm in (grid(r) if make.effects[view] else ())
        if arm != r.reference
    ]
    heads = ("arm", "difference", *DIFFERENCE)
    caption = f"As above, for {view.upper()}; corrected for {_family(make, view)}."
    return Table(name, "Results", f"Differences on {view.upper()}", caption, heads, tuple(rows), (5,))


def seed_tests(make: Maker, view: str) -> Table:
    """Welch's test over seeds in full."""

    def entries(found: Comparison, path: Path, cells: list[Cell]) -> list[Entry]:
        w = found.welch
        return [
            make.one(path, "delta", found.delta, points, cells),
            make.interval(path, ("low", "high"), found.welch_low, found.welch_high, cells),
            make.one(path, "t", w.t, lambda t: _decimals(t, 2), cells),
            make.one(path, "df", w.df, lambda df: _decimals(df, 1), cells),
            make.one(path, "p", w.p_two_sided, p_value, cells),
            make.one(path, "p-one-sided", w.p_one_sided, p_value, cells),
            make.one(path, "run-to-run", found.run_to_run, lambda sd: points(sd, sign=False), cells),
        ]

    heads = (
        "arm",
        "difference",
        "Welch 95%",
        "t",
        "df",
        "p two-sided",
        "p one-sided",
        "run-to-run sd",
        "verdict",
    )
    caption = (
        f"Welch's test on the accuracies of the seeds, each arm against {make.results.reference}, not corrected; "
        "one-sided: for the arm being better. Run-to-run: standard deviation over seeds, pooled over both."
    )
    return _compared(make, view, entries, "seeds", f"{view.upper()}: over seeds", caption, heads, (8,))


def item_tests(make: Maker, view: str) -> Table:
    """The paired test over items, and the interval over seeds and items."""

    def entries(found: Comparison, path: Path, cells: list[Cell]) -> list[Entry]:
        i, c = found.item_test, found.clustered
        if i is None or c is None:
            return [EMPTY] * 8
        return [
            make.one(path, "became-right", i.gained, lambda n: f"{n:,.0f}", cells),
            make.one(path, "became-wrong", i.lost, lambda n: f"{n:,.0f}", cells),
            make.one(path, "difference", i.difference, points, cells),
            make.interval(path, ("low", "high"), i.low, i.high, cells),
            make.one(path, "p", i.p, p_value, cells),
            (i.test.split(",")[0],),
            make.interval(path, ("clustered-low", "clustered-high"), c.low, c.high, cells),
            make.one(path, "clustered-p", c.p, p_value, cells),
        ]

    heads = (
        "arm",
        "better",
        "worse",
        "difference",
        "items 95%",
        "p",
        "test",
        "clustered 95%",
        "p, clustered",
        "verdict",
    )
    caption = (
        f"Better, worse: items that were right more and less often than with {make.results.reference}. Their test and "
        "interval (exact for one seed each, else a bootstrap) hold for these very runs; the clustered ones count seeds "
        "and items, or the items alone where a side has a single seed. Not corrected."
    )
    return _compared(make, view, entries, "items", f"{view.upper()}: over items", caption, heads, (6, 9))


def per_seed(make: Maker) -> Table:
    """Every run on its own."""
    r, rows = make.results, []
    for model, point, arm in grid(r):
        for cell in r.group(model, arm, point):
            path = make.path("per-seed", model, point, arm, cell.seed)
            rows.append(
                Row(arm, ((str(cell.seed),), *make.accuracies(path, [cell])), make.group(model, point))
            )
    heads = ("arm", "seed", *make.accuracy_heads())
    return Table(
        "per-seed", "Every seed", "Accuracy of every run", "", heads, tuple(rows), fold=len(rows) > 12
    )


def power_table(make: Maker) -> Table:
    """What differences the design can find, from the spreads it showed itself."""
    r, rows = make.results, []
    for model in r.models:
        for point in r.points():
            for view in ordered_views(r):
                found, seeds, cells = _design(
                    make, view, [(model, p, arm) for m, p, arm in grid(r) if (m, p) == (model, point)]
                )
                if found is None:
                    continue
                path, size = make.path("power", model, point, view), len(make.effects[view])
                least = [_detectable(found, seeds, LEVEL / count) for count in (1, size)]
                entries = (
                    make.one(path, "seeds", seeds, lambda n: f"{n:.0f}", cells),
                    make.one(path, "items", found.items, lambda n: f"{n:,.0f}", cells),
                    make.one(path, "seed-sd", found.seed_sd, lambda sd: points(sd, sign=False), cells),
                    make.one(
                        path, "discordance", found.discordance, lambda sd: points(sd, sign=False), cells
                    ),
                    make.one(path, "detectable", least[0], _up, cells),
                    make.one(path, "detectable-family", least[1], _up, cells),
                )
                rows.append(Row(view.upper(), entries, make.group(model, point)))
    heads = ("view", "seeds", "items", "seed sd", "discordance", "detectable, alone", "detectable, corrected")
    caption = (
        "In points. Seed sd: of an arm's accuracy over seeds; discordance: over items, of the difference between two "
        "arms' chances. Detectable: the smallest true difference that gets a verdict with a chance of 80%, as the only "
        "comparison and as the first of its family (Bonferroni). Spreads are root mean squares over the study's "
        "comparisons; seeds are the fewest of an arm that has more than one."
    )
    return Table("power", "Power of the design", "Detectable differences", caption, heads, tuple(rows))


def verdict_lines(results: Results, effects: Effects | None = None) -> list[str]:
    """What the study found in plain sentences: gains, losses, what may be chance, single seeds, power."""
    make, lines = Maker(results, effects), []
    words = {
        "gain": f"gain over {results.reference}",
        "loss": f"loss against {results.reference}",
        "inside run-to-run variation": f"inside run-to-run variation of {results.reference}",
        "single seed": f"single seed, so nothing can be said beyond these runs (against {results.reference})",
    }
    for view in ordered_views(results):
        for verdict in VERDICTS:
            those = [
                (place, found) for place, found in make.effects[view].items() if found.verdict == verdict
            ]
            short = len(those) > MANY and verdict not in ("gain", "loss")  # the table has the rest
            some = [_brief(make, place, found, short) for place, found in those]
            lines += [f"{view.upper()}, {words[verdict]}: {'; '.join(some)}."] if some else []
    if not any(make.effects.values()):
        lines.append(f"No arm has been compared with {results.reference}.")
    lines += [f"No result yet: {'; '.join(results.missing)}."] if results.missing else []
    for view in ordered_views(results):
        found, seeds, _ = _design(make, view, grid(results))
        if found is not None:
            told = sentence(found.items, seeds, **_spreads(found), verdict=True)
            spreads = f"seed sd {points(found.seed_sd, sign=False)} points, discordance {points(found.discordance, sign=False)}"
            lines.append(f"{view.upper()}, power: {told}; {spreads}.")
    return lines


def comparison_sentences(results: Results, effects: Effects | None = None) -> list[str]:
    """One sentence a comparison, primary view first."""
    make, lines = Maker(results, effects), []
    for view in ordered_views(results):
        for place, found in make.effects[view].items():
            where = (
                "" if make.single else ", ".join(part for part in (place.model, place.point) if part) + ", "
            )
            lines.append(f"{where}{view.upper()}: {found.sentence}.")
    return lines


def _compared(make: Maker, view: str, entries: Entries, kind: str, title: str, caption: str, heads: tuple[str, ...],
              words: tuple[int, ...]) -> Table:  # fmt: skip
    """A row for every arm but the reference; one without a result says so."""
    r, rows, name = make.results, [], f"{kind}-{slug(view)}"
    for model, point, arm in grid(r) if make.effects[view] else ():
        if arm != r.reference:
            found, path = make.effect(model, point, arm, view), make.path(name, model, point, arm, view)
            shown = (
                entries(found, path, make.pair(model, point, arm, view))
                if found
                else [EMPTY] * (len(heads) - 2)
            )
            rows.append(Row(arm, (*shown, make.judged(model, point, arm, view)), make.group(model, point)))
    return Table(name, "Tests", title, caption, heads, tuple(rows), words)


def _family(make: Maker, view: str) -> str:
    size = max((found.family for found in make.effects[view].values()), default=0)
    return "this one comparison" if size == 1 else f"all {size} comparisons of this view"


def _brief(make: Maker, place: Place, found: Comparison, short: bool) -> str:
    where = "" if make.single else f" ({', '.join(part for part in (place.model, place.point) if part)})"
    test = "" if found.verdict == "single seed" else f", adjusted p {p_value(found.p_adjusted)}"
    interval = f" [{points(found.clustered.low)}, {points(found.clustered.high)}]" if found.clustered else ""
    return f"{place.arm}{where} {points(found.delta)}" + ("" if short else f" points{interval}{test}")


def _design(
    make: Maker, view: str, places: list[tuple[str, dict[str, Any], str]]
) -> tuple[Design | None, int, list[Cell]]:
    """Root mean squares of the comparisons' spreads, the fewest seeds of an arm among them, and their runs."""
    r, found, seeds = make.results, [], []
    cells: dict[str, Cell] = {}
    for model, point, arm in places:
        effect = make.effect(model, point, arm, view)
        if effect and effect.clustered and min(effect.seeds) > 1:
            a, b = (
                r.matrix(with_view(r.group(model, name, point), view), view) for name in (arm, r.reference)
            )
            found.append(design(a, b))
            seeds.append(min(effect.seeds))
            cells |= {cell.source.folder: cell for cell in make.pair(model, point, arm, view)}
    if not found:
        return None, 0, []
    typical = {
        name: math.sqrt(np.mean([_spreads(one)[name] ** 2 for one in found])) for name in _spreads(found[0])
    }
    return Design(found[0].items, **typical), min(seeds), list(cells.values())


def _detectable(found: Design, seeds: int, alpha: float) -> float:
    return detectable(found.items, seeds, **_spreads(found), alpha=alpha, verdict=True)


def _spreads(found: Design) -> dict[str, float]:
    return {"seed_sd": found.seed_sd, "discordance": found.discordance, "noise": found.noise}


def _up(share: float) -> str:
    """Points, rounded up: a smaller number would promise too much."""
    return f"{math.ceil(round(share * 1000, 6)) / 10:.1f}"


def _decimals(value: float, digits: int) -> str:
    return "n/a" if math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"

"""From a study's results to its tables, in which every number knows its runs, and to sentences.

It leaves out the statistics (comparison.py, power.py), how a table looks, and what tables_paper.py and
tables_tokens.py have.
"""

import math
from collections.abc import Callable
from functools import partial
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
    Place,
    StudyTable,
    TableBuilder,
    slug,
    whole,
)
from smopd.study.tables_paper import paper_table
from smopd.study.tables_tokens import calibration_tables, gradient_table
from smopd.tables import Row

LEVEL = 0.05
MANY = 8  # arms that one sentence can tell in full
DIFFERENCE = ("95% interval", "p", "p, Holm", "verdict")  # what stands beside a difference


def make_tables(results: Results, effects: Effects | None = None) -> list[StudyTable]:
    """Every table of the report, in order; one that has nothing to show is left out."""
    make = TableBuilder(results, effects)
    made = [main_table(make), changes_table(make), *(effects_table(make, view) for view in make.views[1:])]
    made += [table for view in make.views for table in (seed_tests(make, view), item_tests(make, view))]
    made += [power_table(make), paper_table(make), *calibration_tables(make)]
    made += [gradient_table(make), per_seed(make)]
    return [table for table in made if table.rows]


def main_table(make: TableBuilder) -> StudyTable:
    """The base model and every arm: accuracies, and the difference from the reference on the primary view."""
    r, rows = make.results, []
    for place in make.places:
        if place.arm == r.arms[0] and (base := make.base(place)):
            accuracies = make.accuracies(["base", place.model], base)
            entries = (EMPTY, *accuracies, EMPTY, EMPTY, EMPTY, EMPTY, ("not trained",))
            rows.append(Row("base model", entries, make.group(place)))
        path, cells = make.path("main", place), make.cells(place)
        seeds = make.one(path, cells, "seeds", len(cells), whole)
        of = (f" of {len(r.seeds)}",) if len(cells) < len(r.seeds) else ()
        shown = (*make.accuracies(path, cells), *make.difference("main", place, make.primary))
        rows.append(Row(place.arm, ((*seeds, *of), *shown), make.group(place)))
    heads = ("arm", "seeds", *make.accuracy_heads(), f"{make.primary.upper()} difference", *DIFFERENCE)
    caption = (
        f"Mean ± sample standard deviation over seeds. Differences from {r.reference} in percentage points, "
        "with an interval over seeds and items (over items alone for a single seed); p: Welch's test over "
        f"seeds, two-sided; Holm: corrected for {_family(make, make.primary)}, to which the base model does "
        "not belong."
    )
    return StudyTable(
        name="main", section="Results", title="Base model and arms", caption=caption, heads=heads, rows=rows,
        words=(len(heads) - 1,),
    )  # fmt: skip


def changes_table(make: TableBuilder) -> StudyTable:
    """Every arm against the model it started from."""
    rows = []
    for place in make.places:
        entries = []
        for view in make.views:
            path, cells = (
                make.path("changes", place, view),
                [*make.cells(place, view), *make.base(place, view)],
            )
            if found := make.change(place, view):
                entries.append(make.one(path, cells, "delta", found.delta, points))
                entries.append(make.interval(path, cells, found.low, found.high))
            else:
                entries += [EMPTY, EMPTY]
        rows += [Row(place.arm, tuple(entries), make.group(place))] if {*entries} != {EMPTY} else []
    heads = ("arm", *(head for view in make.views for head in (view.upper(), "95% interval")))
    caption = (
        "In percentage points, against the base model, which was not trained; intervals over seeds and items "
        "(over items alone for a single seed), not corrected. They say whether training changed anything, "
        "not whether an arm is better than another."
    )
    title = "What training changed"
    return StudyTable(name="changes", section="Results", title=title, caption=caption, heads=heads, rows=rows)


def effects_table(make: TableBuilder, view: str) -> StudyTable:
    """The differences on another view."""
    name, places = f"effects-{slug(view)}", make.treatments if make.effects[view] else []
    rows = [Row(place.arm, tuple(make.difference(name, place, view)), make.group(place)) for place in places]
    heads = ("arm", "difference", *DIFFERENCE)
    caption = f"As above, for {view.upper()}; corrected for {_family(make, view)}."
    return StudyTable(
        name=name, section="Results", title=f"Differences on {view.upper()}", caption=caption, heads=heads,
        rows=rows, words=(5,),
    )  # fmt: skip


def seed_tests(make: TableBuilder, view: str) -> StudyTable:
    """Welch's test over seeds in full."""

    def entries(found: Comparison, one: Any, interval: Any) -> list[Entry]:
        w = found.welch
        return [
            one("delta", found.delta, points),
            interval(found.welch_low, found.welch_high),
            one("t", w.t, partial(_decimals, 2)),
            one("df", w.df, partial(_decimals, 1)),
            one("p", w.p_two_sided, p_value),
            one("p-one-sided", w.p_one_sided, p_value),
            one("run-to-run", found.run_to_run, _unsigned),
        ]

    heads = ("difference", "Welch 95%", "t", "df", "p two-sided", "p one-sided", "run-to-run sd")
    caption = (
        f"Welch's test on the accuracies of the seeds, each arm against {make.results.reference}, not "
        "corrected; one-sided: for the arm being better. Where all seeds of both agree, or one has a single "
        "seed, there is no such test or interval (n/a). Run-to-run: standard deviation over seeds, pooled "
        "over both."
    )
    return _compared(make, view, entries, "seeds", caption, heads)


def item_tests(make: TableBuilder, view: str) -> StudyTable:
    """The paired test over items, and the interval over seeds and items."""

    def entries(found: Comparison, one: Any, interval: Any) -> list[Entry]:
        i, c = found.item_test, found.clustered
        if i is None or c is None:
            return [EMPTY] * 8
        return [
            one("became-right", i.gained, whole),
            one("became-wrong", i.lost, whole),
            one("difference", i.difference, points),
            interval(i.low, i.high),
            one("p", i.p, p_value),
            (i.test.split(",")[0],),
            interval(c.low, c.high, "clustered-"),
            one("clustered-p", c.p, p_value),
        ]

    heads = ("better", "worse", "difference", "items 95%", "p", "test", "clustered 95%", "p, clustered")
    caption = (
        f"Better, worse: items that were correct more and less often than with {make.results.reference}. "
        "Their test and interval (exact for one seed each, else a bootstrap) hold for these very runs; the "
        "clustered ones count seeds and items, or the items alone where a side has a single seed. Not "
        "corrected."
    )
    return _compared(make, view, entries, "items", caption, heads, 6)


def per_seed(make: TableBuilder) -> StudyTable:
    """Every run on its own."""
    rows = []
    for place in make.places:
        for cell in make.cells(place):
            shown = make.accuracies(make.path("per-seed", place, cell.seed), [cell])
            rows.append(Row(place.arm, ((str(cell.seed),), *shown), make.group(place)))
    heads, fold = ("arm", "seed", *make.accuracy_heads()), len(rows) > 12
    title = "Accuracy of every run"
    return StudyTable(name="per-seed", section="Every seed", title=title, heads=heads, rows=rows, fold=fold)


def power_table(make: TableBuilder) -> StudyTable:
    """What differences the design can find, from the spreads it showed itself."""
    rows = []
    for first in (place for place in make.places if place.arm == make.results.arms[0]):
        for view in make.views:
            found, seeds, cells = _design(make, view, [p for p in make.places if p[:2] == first[:2]])
            if found is None:
                continue
            one = partial(make.one, make.path("power", first._replace(arm=""), view), cells)
            detect = partial(detectable, found.items, seeds, **found.spreads(), verdict=True)
            alone, corrected = (detect(alpha=LEVEL / n) for n in (1, len(make.effects[view])))
            entries = (
                one("seeds", seeds, whole),
                one("items", found.items, whole),
                one("seed-sd", found.seed_sd, _unsigned),
                one("discordance", found.discordance, _unsigned),
                one("detectable", alone, _up),
                one("detectable-family", corrected, _up),
            )
            rows.append(Row(view.upper(), entries, make.group(first)))
    heads = "view", "seeds", "items", "seed sd", "discordance", "detectable, alone", "detectable, corrected"
    caption = (
        "In points. Seed sd: of an arm's accuracy over seeds; discordance: over items, of the difference "
        "between two arms' chances. Detectable: the smallest true difference that gets a verdict with a "
        "chance of 80%, as the only comparison and as the first of its family (Bonferroni). Spreads are root "
        "mean squares over the study's comparisons; seeds are the fewest of an arm that has more than one."
    )
    return StudyTable(
        name="power", section="Power of the design", title="Detectable differences", caption=caption,
        heads=heads, rows=rows,
    )  # fmt: skip


def verdict_lines(results: Results, effects: Effects | None = None) -> list[str]:
    """What the study found in plain sentences: gains, losses, what may be chance, single seeds, power."""
    make, lines = TableBuilder(results, effects), []
    words = {
        "gain": f"gain over {results.reference}",
        "loss": f"loss against {results.reference}",
        "inside run-to-run variation": f"inside run-to-run variation of {results.reference}",
        "no spread over seeds": f"no spread over seeds to judge by (against {results.reference})",
        "single seed": f"single seed, so nothing can be said beyond these runs (against {results.reference})",
    }
    for view in make.views:
        for verdict in VERDICTS:
            those = [(p, found) for p, found in make.effects[view].items() if found.verdict == verdict]
            short = len(those) > MANY and verdict not in ("gain", "loss")  # the table has the rest
            some = [_brief(make, place, found, short) for place, found in those]
            lines += [f"{view.upper()}, {words[verdict]}: {'; '.join(some)}."] if some else []
    lines += [line for view in make.views if (line := _changed(make, view))]
    if not any(make.effects.values()) and len(results.arms) > 1:
        lines.append(f"No arm has been compared with {results.reference}.")
    lines += [f"No result yet: {'; '.join(results.missing)}."] if results.missing else []
    for view in make.views:
        spread, seeds, _ = _design(make, view, make.places)
        if spread is not None:
            smallest = sentence(spread.items, seeds, **spread.spreads(), verdict=True)
            sds = f"seed sd {_unsigned(spread.seed_sd)} points, discordance {_unsigned(spread.discordance)}"
            lines.append(f"{view.upper()}, power: {smallest}; {sds}.")
    return lines


def comparison_sentences(results: Results, effects: Effects | None = None) -> list[str]:
    """One sentence a comparison, primary view first."""
    make, lines = TableBuilder(results, effects), []
    for view in make.views:
        for place, found in make.effects[view].items():
            where = "" if make.single else f"{place.where}, "
            lines.append(f"{where}{view.upper()}: {found.sentence}.")
    return lines


def _compared(
    make: TableBuilder, view: str, entries: Callable[[Comparison, Any, Any], list[Entry]], kind: str,
    caption: str, heads: tuple[str, ...], *words: int,
) -> StudyTable:  # fmt: skip
    """A row for every arm but the reference; one without a result says so."""
    rows, name = [], f"{kind}-{slug(view)}"
    for place in make.treatments if make.effects[view] else []:
        origin = make.path(name, place, view), make.pair(place, view)
        makers = partial(make.one, *origin), partial(make.interval, *origin)
        found = make.effects[view].get(place)
        shown = entries(found, *makers) if found else [EMPTY] * len(heads)
        rows.append(Row(place.arm, (*shown, make.judged(place, view)), make.group(place)))
    title, heads = f"{view.upper()}: over {kind}", ("arm", *heads, "verdict")
    words = (*words, len(heads) - 1)
    return StudyTable(
        name=name, section="Tests", title=title, caption=caption, heads=heads, rows=rows, words=words
    )


def _family(make: TableBuilder, view: str) -> str:
    size = max((found.family for found in make.effects[view].values()), default=0)
    return "this one comparison" if size == 1 else f"all {size} comparisons of this view"


def _changed(make: TableBuilder, view: str) -> str:
    """What training changed: an arm alone, or the least and the most of several."""
    found = {place: change for place in make.places if (change := make.change(place, view))}
    ends = sorted(found, key=lambda place: found[place].delta)
    told = []
    for place in ends if len(ends) < 2 else (ends[0], ends[-1]):
        low, high = (points(end) for end in (found[place].low, found[place].high))
        name = f"{place.arm}{'' if make.single else f' ({place.where})'}"
        told.append(f"{points(found[place].delta)} points [{low}, {high}] ({name})")
    return f"{view.upper()}, against the model before training: {' to '.join(told)}." if told else ""


def _brief(make: TableBuilder, place: Place, found: Comparison, short: bool) -> str:
    text = f"{place.arm}{'' if make.single else f' ({place.where})'} {points(found.delta)}"
    if short:
        return text
    interval = f" [{points(found.clustered.low)}, {points(found.clustered.high)}]" if found.clustered else ""
    test = "" if math.isnan(found.p_adjusted) else f", adjusted p {p_value(found.p_adjusted)}"
    return f"{text} points{interval}{test}"


def _design(make: TableBuilder, view: str, places: list[Place]) -> tuple[Design | None, int, list[Cell]]:
    """Root mean squares of the comparisons' spreads, the fewest seeds of an arm, and their runs."""
    found, seeds = [], []
    cells: dict[str, Cell] = {}
    for place in places:
        effect = make.effects[view].get(place)
        if effect and effect.clustered and min(effect.seeds) > 1:
            found.append(design(*make.matrices(place, view)))
            seeds.append(min(effect.seeds))
            cells |= {cell.source.folder: cell for cell in make.pair(place, view)}
    if not found:
        return None, 0, []
    typical = np.sqrt(np.mean([(d.seed_sd**2, d.discordance**2, d.noise**2) for d in found], axis=0))
    return Design(found[0].items, *typical.tolist()), min(seeds), list(cells.values())


def _unsigned(share: float) -> str:
    return points(share, sign=False)


def _up(share: float) -> str:
    """Points, rounded up: a smaller number would promise too much."""
    return f"{math.ceil(round(share * 1000, 6)) / 10:.1f}"


def _decimals(digits: int, value: float) -> str:
    return "n/a" if math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"

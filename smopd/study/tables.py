"""Make a study's tables, in which every number knows its runs, and put its findings into sentences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from smopd.formatting import finite, p_value, points
from smopd.study.comparison import Comparison
from smopd.study.paper import PaperRow, find, paper_model, paper_rows
from smopd.study.plan import slug
from smopd.study.results import Cell
from smopd.study.statistics import ALPHA, Design, design, detectable, round_up, sentence
from smopd.study.table_parts import EMPTY, NONE, TABLES, VERDICTS, Entry, Origin, Place, StudyTable

from smopd.study.table_parts import TableBuilder, mean_entry, plain, whole  # isort: skip
from smopd.tables import Row

_unsigned = partial(points, sign=False)


def make_tables(make: TableBuilder) -> list[StudyTable]:
    tables = [main_table(make), changes_table(make)]
    tables += [compare_table(make, "effects", view) for view in make.views[1:]]
    tables += [compare_table(make, kind, view) for view in make.views for kind in ("seeds", "items")]
    tables += [power_table(make), paper_table(make), log_table(make, "calibration", "tokens")]
    tables += [bins_table(make), log_table(make, "gradients", "gradients"), per_seed(make)]
    return [table for table in tables if table.rows]


def main_table(make: TableBuilder) -> StudyTable:
    """The base model and every arm: accuracies, and the difference from the reference on the primary view."""
    r, rows = make.results, []
    for place in make.places:
        if place.arm == r.arms[0] and (base := make.cells(place._replace(arm="base"))):
            accuracies = make.accuracies(("base", place.model), base)
            entries = [EMPTY, *accuracies, *[EMPTY] * 4, ("not trained",)]
            rows.append(Row("base model", entries, make.group(place)))
        path, cells = make.path("main", place), make.cells(place)
        seeds = Origin(path, cells).number("seeds", len(cells), whole)
        of = (f" of {len(r.seeds)}",) if len(cells) < len(r.seeds) else ()
        compared = _compare_entries(make, "effects", "main", place, make.primary)
        rows.append(make.row(place, [(*seeds, *of), *make.accuracies(path, cells), *compared]))
    difference = f"{make.primary.upper()} difference", *TABLES["effects"]["heads"][2:]
    return make.table("main", rows, ("arm", "seeds", *make.accuracy_heads(), *difference))


def changes_table(make: TableBuilder) -> StudyTable:
    rows = []
    for place in make.places:
        entries = []
        for view in make.views:
            change, origin = make.change(place, view), make.compared("changes", place, view, "base")
            entries.append(origin.number("delta", change.delta, points) if change else EMPTY)
            entries.append(origin.interval(change.low, change.high) if change else EMPTY)
        rows += [make.row(place, entries)] if {*entries} != {EMPTY} else []
    heads = ("arm", *(head for view in make.views for head in (view.upper(), "95% interval")))
    return make.table("changes", rows, heads)


def compare_table(make: TableBuilder, kind: str, view: str) -> StudyTable:
    name, places = f"{kind}-{slug(view)}", make.treatments if make.effects[view] else []
    rows = [make.row(place, _compare_entries(make, kind, name, place, view)) for place in places]
    return make.table(kind, rows, view=view)


def _compare_entries(make: TableBuilder, kind: str, name: str, place: Place, view: str) -> list[Entry]:
    """The entries of a comparison in this kind of table, and the verdict or why there is none."""
    effect, origin = make.effects[view].get(place), make.compared(name, place, view)
    entries = [EMPTY] * (len(TABLES[kind]["heads"]) - 2)
    if effect and kind == "effects":
        over = effect.clustered
        entries = [
            origin.number("delta", effect.delta, points),
            origin.interval(*((over.low, over.high) if over else (effect.welch_low, effect.welch_high))),
            origin.number("p", effect.welch.p_two_sided, p_value),
            origin.number("p-holm", effect.p_adjusted, p_value),
        ]
    elif effect and kind == "seeds":
        w = effect.welch
        entries = [
            origin.number("delta", effect.delta, points),
            origin.interval(effect.welch_low, effect.welch_high),
            origin.number("t", w.t, partial(_decimals, 2)),
            origin.number("df", w.df, partial(_decimals, 1)),
            origin.number("p", w.p_two_sided, p_value),
            origin.number("p-one-sided", w.p_one_sided, p_value),
            origin.number("run-to-run", effect.run_to_run, _unsigned),
        ]
    elif effect and (i := effect.item_test) and (c := effect.clustered):
        entries = [
            origin.number("became-right", i.gained, whole),
            origin.number("became-wrong", i.lost, whole),
            origin.number("difference", i.difference, points),
            origin.interval(i.low, i.high),
            origin.number("p", i.p, p_value),
            (i.test.split(",")[0],),
            origin.interval(c.low, c.high, "clustered-"),
            origin.number("clustered-p", c.p, p_value),
        ]
    return [*entries, make.verdict_of(place, view)]


def per_seed(make: TableBuilder) -> StudyTable:
    rows = [
        make.row(place, [str(cell.seed), *make.accuracies(make.path("per-seed", place, cell.seed), [cell])])
        for place in make.places
        for cell in make.cells(place)
    ]
    return make.table("per-seed", rows, ("arm", "seed", *make.accuracy_heads()), fold=len(rows) > 12)


def power_table(make: TableBuilder) -> StudyTable:
    """The differences the design can detect, given the spreads that it showed."""
    rows = []
    for first in (place for place in make.places if place.arm == make.results.arms[0]):
        for view in make.views:
            typical, seeds, cells = _design(make, view, [p for p in make.places if p[:2] == first[:2]])
            if typical is None:
                continue
            number = Origin(make.path("power", first._replace(arm=""), view), cells).number
            detect = partial(detectable, seeds=seeds, **asdict(typical), verdict=True)
            alone, corrected = (detect(alpha=ALPHA / n) for n in (1, len(make.effects[view])))
            entries = (
                number("seeds", seeds, whole),
                number("items", typical.items, whole),
                number("seed-sd", typical.seed_sd, _unsigned),
                number("discordance", typical.discordance, _unsigned),
                number("detectable", alone, round_up),
                number("detectable-family", corrected, round_up),
            )
            rows.append(Row(view.upper(), entries, make.group(first)))
    return make.table("power", rows)


def paper_table(make: TableBuilder) -> StudyTable:
    """Our values beside those of the paper's study that this one repeats; empty if it repeats none."""
    r, rows = make.results, []
    for place in make.places:
        cells = make.cells(place)
        for printed in _find_paper_rows(make, place) if cells else ():
            where = ", ".join(dict.fromkeys(filter(None, (printed.table, printed.label, printed.column))))
            source = f"{printed.model.upper()}, {printed.steps} steps: {where}"
            for view, ours in zip(r.views, make.accuracies(make.path("paper", place), cells), strict=False):
                accuracy, theirs = printed.accuracy(view), printed.effect(view, r.reference)
                if accuracy is None and theirs is None:
                    continue
                origin, effect = make.compared("paper", place, view), make.effects[view].get(place)
                delta = origin.number("delta", effect.delta, points) if effect else EMPTY
                apart = EMPTY
                if effect and theirs is not None:
                    of = Origin((*origin.path, f"{printed.model}-{printed.steps}"), origin.cells)
                    apart = of.number("less-paper", effect.delta - theirs / 100, points)
                paper = NONE if accuracy is None else f"{accuracy:.1f}"
                papers = NONE if theirs is None else f"{theirs:+.1f}"
                compared = delta, papers, apart, make.verdict_of(place, view)
                rows.append(make.row(place, [view.upper(), ours, paper, *compared, source]))
    return make.table("paper", rows)


def _find_paper_rows(make: TableBuilder, place: Place) -> list[PaperRow]:
    """The paper's rows of an arm: of the same model, or of all models if the paper lacks this one."""
    study, axes = make.results.paper, make.axes_of[place.point]
    steps = next((v for name, v in axes.items() if name.endswith(".steps") and isinstance(v, int)), None)
    if paper_model(place.model) is not None:
        row = find(study, place.model, place.arm, steps)
        return [row] if row else []
    return [row for row in paper_rows(study) if row.arm == place.arm and steps in (None, row.steps)]


def log_table(make: TableBuilder, kind: str, log: str) -> StudyTable:
    """Means over the seeds of an arm of what their `log` ("tokens" or "gradients") says."""
    rows = []
    for place in make.places:
        if logs := [(cell, getattr(cell, log)) for cell in make.cells(place) if getattr(cell, log)]:
            path = make.path(kind, place)
            entries = _means(path, logs, TABLES[kind]["columns"])
            if ends := TABLES[kind].get("interval"):
                low, high = (end[:1] for end in _means(path, logs, ends))
                entries.append(EMPTY if EMPTY in (low, high) else ("[", *low, ", ", *high, "]"))
            rows.append(make.row(place, entries))
    return make.table(kind, rows)


def bins_table(make: TableBuilder) -> StudyTable:
    rows = []
    for place in make.places:
        logs = [(c, b) for c in make.cells(place) for b in (c.tokens or {}).get("bins", [])]
        group = ", ".join(part for part in (make.group(place), place.arm) if part)
        for low, high in sorted({(b["low"], b["high"]) for _, b in logs}):
            some = [(cell, b) for cell, b in logs if b["low"] == low]
            entries = _means(make.path("bins", place, f"{low:g}-{high:g}"), some, TABLES["bins"]["columns"])
            rows.append(Row(f"{low:g} to {high:g}", entries, group))
    return make.table("bins", rows, fold=True)


def _means(
    path: tuple[object, ...], logs: Sequence[tuple[Cell, dict[str, Any]]], columns: Iterable[str]
) -> list[Entry]:
    entries = []
    for key in columns:
        known = [(cell, value) for cell, log in logs if (value := finite(log.get(key))) is not None]
        entries.append(mean_entry((*path, key), known, whole if key in ("tokens", "count") else plain))
    return entries


def verdict_lines(make: TableBuilder, missing: Sequence[str] = ()) -> list[str]:
    """The findings in plain sentences: gains, losses, what may be chance, single seeds, power."""
    lines, reference = list[str](), make.results.reference
    for view in make.views:
        for verdict in VERDICTS:
            those = [(p, effect) for p, effect in make.effects[view].items() if effect.verdict == verdict]
            some = [_describe_effect(make, *pair) for pair in those]
            if len(those) > 8 and verdict not in ("gain", "loss"):  # the table has the details
                some = [f"{make.label(place)} {points(effect.delta)}" for place, effect in those]
            phrase = TABLES["verdicts"][verdict].format(reference=reference)
            lines += [f"{view.upper()}, {phrase}: {'; '.join(some)}."] if some else []
    lines += [line for view in make.views if (line := _describe_changes(make, view))]
    if not any(make.effects.values()) and len(make.results.arms) > 1:
        lines.append(f"No arm has been compared with {reference}.")
    lines += [f"No result yet: {'; '.join(missing)}."] if missing else []
    for view in make.views:
        spread, seeds, _ = _design(make, view, make.places)
        if spread is not None:
            smallest = sentence(seeds=seeds, **asdict(spread), verdict=True)
            sds = f"seed sd {_unsigned(spread.seed_sd)} points, discordance {_unsigned(spread.discordance)}"
            lines.append(f"{view.upper()}, power: {smallest}; {sds}.")
    return lines


def comparison_sentences(make: TableBuilder) -> list[str]:
    return [
        f"{'' if make.single else f'{place.where}, '}{view.upper()}: {effect.sentence}."
        for view in make.views
        for place, effect in make.effects[view].items()
    ]


def _describe_changes(make: TableBuilder, view: str) -> str:
    """What training changed: for a single arm, or the smallest and largest change of several."""
    changes = {place: change for place in make.places if (change := make.change(place, view))}
    ends = sorted(changes, key=lambda place: changes[place].delta)
    parts = []
    for place in ends if len(ends) < 2 else (ends[0], ends[-1]):
        low, high = (points(end) for end in (changes[place].low, changes[place].high))
        parts.append(f"{points(changes[place].delta)} points [{low}, {high}] ({make.label(place)})")
    return f"{view.upper()}, against the model before training: {' to '.join(parts)}." if parts else ""


def _describe_effect(make: TableBuilder, place: Place, effect: Comparison) -> str:
    over = effect.clustered
    interval = f" [{points(over.low)}, {points(over.high)}]" if over else ""
    test = "" if math.isnan(effect.p_adjusted) else f", adjusted p {p_value(effect.p_adjusted)}"
    return f"{make.label(place)} {points(effect.delta)} points{interval}{test}"


def _design(make: TableBuilder, view: str, places: list[Place]) -> tuple[Design | None, int, list[Cell]]:
    """Root mean squares of the comparisons' spreads, the fewest seeds of an arm, and the runs."""
    effects = {place: effect for place in places if (effect := make.effects[view].get(place))}
    known = {place: min(e.seeds) for place, e in effects.items() if e.clustered and min(e.seeds) > 1}
    if not known:
        return None, 0, []
    designs = [design(*make.matrices(place, view)) for place in known]
    typical = np.sqrt(np.mean([(d.seed_sd**2, d.discordance**2, d.noise**2) for d in designs], axis=0))
    cells = [cell for place in known for runs in make.pair(place, view) for cell in runs]
    return Design(designs[0].items, *typical.tolist()), min(known.values()), cells


def _decimals(digits: int, value: float) -> str:
    return "n/a" if math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"

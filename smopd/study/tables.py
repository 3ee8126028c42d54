"""From a study's results to its tables, in which every number knows its runs, and to sentences.

It leaves out the statistics (comparison.py, power.py) and how a table looks.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from smopd.formatting import finite, p_value, points
from smopd.study.comparison import Comparison
from smopd.study.paper import PaperRow, find, paper_model, paper_rows
from smopd.study.plan import slug
from smopd.study.power import ALPHA, Design, design, detectable, round_up, sentence
from smopd.study.results import Cell, Results
from smopd.study.table_parts import EMPTY, NONE, VERDICTS, Effects, Entry, Origin, Place, StudyTable

from smopd.study.table_parts import TableBuilder, mean_entry, plain, study_table, whole  # isort: skip
from smopd.tables import Row

MANY = 8  # arms that one sentence can tell in full
DIFFERENCE = ("95% interval", "p", "p, Holm", "verdict")  # what stands beside a difference
Logs = list[tuple[Cell, dict[str, Any]]]

CALIBRATION = {
    "tokens": "tokens", "agreement": "teacher agrees", "agreement_kept": "kept",
    "agreement_dropped": "dropped", "ece": "ECE", "auroc": "AUROC",
}  # fmt: skip
BINS = {"count": "tokens", "student": "student", "teacher": "teacher", "agreement": "teacher agrees"}
GRADIENTS = {
    "tokens_dropped": "tokens dropped", "divergence_dropped": "divergence dropped", "norm_kept": "norm, kept",
    "norm_dropped": "norm, dropped", "norm_share_dropped": "share of norm dropped", "cosine": "cosine",
}  # fmt: skip


def make_tables(results: Results, effects: Effects | None = None) -> list[StudyTable]:
    """Every table of the report, in order; one that has nothing to show is left out."""
    make = TableBuilder(results, effects)
    tables = [main_table(make), changes_table(make), *(effects_table(make, v) for v in make.views[1:])]
    tables += [table for view in make.views for table in (seed_tests(make, view), item_tests(make, view))]
    tables += [power_table(make), paper_table(make), *calibration_tables(make)]
    tables += [gradient_table(make), per_seed(make)]
    return [table for table in tables if table.rows]


def main_table(make: TableBuilder) -> StudyTable:
    """The base model and every arm: accuracies, and the difference from the reference on the primary view."""
    r, rows = make.results, []
    for place in make.places:
        if place.arm == r.arms[0] and (base := make.base(place)):
            accuracies = make.accuracies(("base", place.model), base)
            entries = [EMPTY, *accuracies, *[EMPTY] * 4, ("not trained",)]
            rows.append(Row("base model", entries, make.group(place)))
        path, cells = make.path("main", place), make.cells(place)
        seeds = Origin(path, cells).number("seeds", len(cells), whole)
        of = (f" of {len(r.seeds)}",) if len(cells) < len(r.seeds) else ()
        shown = [*make.accuracies(path, cells), *make.difference("main", place, make.primary)]
        rows.append(make.row(place, [(*seeds, *of), *shown]))
    heads = ("arm", "seeds", *make.accuracy_heads(), f"{make.primary.upper()} difference", *DIFFERENCE)
    caption = (
        f"Mean ± sample standard deviation over seeds. Differences from {r.reference} in percentage points, "
        "with an interval over seeds and items (over items alone for a single seed); p: Welch's test over "
        f"seeds, two-sided; Holm: corrected for {_family(make, make.primary)}, to which the base model does "
        "not belong."
    )
    title, last = "Base model and arms", len(heads) - 1
    return study_table("main", "Results", title, caption, heads, rows, last)


def changes_table(make: TableBuilder) -> StudyTable:
    rows = []
    for place in make.places:
        entries = []
        for view in make.views:
            cells, change = [*make.cells(place, view), *make.base(place, view)], make.change(place, view)
            origin = Origin(make.path("changes", place, view), cells)
            entries.append(origin.number("delta", change.delta, points) if change else EMPTY)
            entries.append(origin.interval(change.low, change.high) if change else EMPTY)
        rows += [make.row(place, entries)] if {*entries} != {EMPTY} else []
    heads = ("arm", *(head for view in make.views for head in (view.upper(), "95% interval")))
    caption = (
        "In percentage points, against the base model, which was not trained; intervals over seeds and items "
        "(over items alone for a single seed), not corrected. They say whether training changed anything, "
        "not whether an arm is better than another."
    )
    return study_table("changes", "Results", "What training changed", caption, heads, rows)


def effects_table(make: TableBuilder, view: str) -> StudyTable:
    name, places = f"effects-{slug(view)}", make.treatments if make.effects[view] else []
    rows = [make.row(place, make.difference(name, place, view)) for place in places]
    caption = f"As above, for {view.upper()}; corrected for {_family(make, view)}."
    heads = ("arm", "difference", *DIFFERENCE)
    return study_table(name, "Results", f"Differences on {view.upper()}", caption, heads, rows, 5)


def seed_tests(make: TableBuilder, view: str) -> StudyTable:
    def entries(effect: Comparison, origin: Origin) -> list[Entry]:
        w = effect.welch
        return [
            origin.number("delta", effect.delta, points),
            origin.interval(effect.welch_low, effect.welch_high),
            origin.number("t", w.t, partial(_decimals, 2)),
            origin.number("df", w.df, partial(_decimals, 1)),
            origin.number("p", w.p_two_sided, p_value),
            origin.number("p-one-sided", w.p_one_sided, p_value),
            origin.number("run-to-run", effect.run_to_run, _unsigned),
        ]

    heads = ("difference", "Welch 95%", "t", "df", "p two-sided", "p one-sided", "run-to-run sd")
    caption = (
        f"Welch's test on the accuracies of the seeds, each arm against {make.results.reference}, not "
        "corrected; one-sided: for the arm being better. Where all seeds of both agree, or one has a single "
        "seed, there is no such test or interval (n/a). Run-to-run: standard deviation over seeds, pooled "
        "over both."
    )
    return _tests(make, view, entries, "seeds", caption, heads)


def item_tests(make: TableBuilder, view: str) -> StudyTable:
    """The paired test over items, and the interval over seeds and items."""

    def entries(effect: Comparison, origin: Origin) -> list[Entry]:
        i, c = effect.item_test, effect.clustered
        if i is None or c is None:
            return [EMPTY] * 8
        return [
            origin.number("became-right", i.gained, whole),
            origin.number("became-wrong", i.lost, whole),
            origin.number("difference", i.difference, points),
            origin.interval(i.low, i.high),
            origin.number("p", i.p, p_value),
            (i.test.split(",")[0],),
            origin.interval(c.low, c.high, "clustered-"),
            origin.number("clustered-p", c.p, p_value),
        ]

    heads = ("better", "worse", "difference", "items 95%", "p", "test", "clustered 95%", "p, clustered")
    caption = (
        f"Better, worse: items that were correct more and less often than with {make.results.reference}. "
        "Their test and interval (exact for one seed each, else a bootstrap) hold for these very runs; the "
        "clustered ones count seeds and items, or the items alone where a side has a single seed. Not "
        "corrected."
    )
    return _tests(make, view, entries, "items", caption, heads, 6)


def _tests(
    make: TableBuilder, view: str, entries: Callable[[Comparison, Origin], list[Entry]], kind: str,
    caption: str, heads: tuple[str, ...], *text_columns: int,
) -> StudyTable:  # fmt: skip
    """A row for every arm but the reference; one without a result says so."""
    rows, name = [], f"{kind}-{slug(view)}"
    for place in make.treatments if make.effects[view] else []:
        effect = make.effects[view].get(place)
        shown = entries(effect, make.compared(name, place, view)) if effect else [EMPTY] * len(heads)
        rows.append(make.row(place, [*shown, make.verdict_of(place, view)]))
    title, heads = f"{view.upper()}: over {kind}", ("arm", *heads, "verdict")
    return study_table(name, "Tests", title, caption, heads, rows, *text_columns, len(heads) - 1)


def per_seed(make: TableBuilder) -> StudyTable:
    rows = []
    for place in make.places:
        for cell in make.cells(place):
            shown = make.accuracies(make.path("per-seed", place, cell.seed), [cell])
            rows.append(make.row(place, [(str(cell.seed),), *shown]))
    heads, title = ("arm", "seed", *make.accuracy_heads()), "Accuracy of every run"
    return study_table("per-seed", "Every seed", title, "", heads, rows, fold=len(rows) > 12)


def power_table(make: TableBuilder) -> StudyTable:
    """What differences the design can find, from the spreads it showed itself."""
    rows = []
    for first in (place for place in make.places if place.arm == make.results.arms[0]):
        for view in make.views:
            typical, seeds, cells = _design(make, view, [p for p in make.places if p[:2] == first[:2]])
            if typical is None:
                continue
            number = Origin(make.path("power", first._replace(arm=""), view), cells).number
            detect = partial(detectable, typical.items, seeds, **typical.spreads(), verdict=True)
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
    heads = "view", "seeds", "items", "seed sd", "discordance", "detectable, alone", "detectable, corrected"
    caption = (
        "In points. Seed sd: of an arm's accuracy over seeds; discordance: over items, of the difference "
        "between two arms' chances. Detectable: the smallest true difference that gets a verdict with a "
        "chance of 80%, as the only comparison and as the first of its family (Bonferroni). Spreads are root "
        "mean squares over the study's comparisons; seeds are the fewest of an arm that has more than one."
    )
    return study_table("power", "Power of the design", "Detectable differences", caption, heads, rows)


def paper_table(make: TableBuilder) -> StudyTable:
    """Ours beside the printed values of the paper's study that this one repeats; empty where it has none."""
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
                verdict = make.verdict_of(place, view)
                rows.append(
                    make.row(place, (view.upper(), ours, paper, delta, papers, apart, verdict, source))
                )
    heads = (
        "arm", "view", "ours, %", "paper, %", "our difference", "paper's", "ours less paper's", "our verdict",
        "paper",
    )  # fmt: skip
    caption = (
        f"Differences from {r.reference} in percentage points; where the paper prints none, that of its "
        "printed accuracies. A model that the paper does not have stands beside each of the paper's: then "
        "only the direction and the size of an effect can be compared."
    )
    title = f"Ours and the paper's: {r.paper}"
    return study_table("paper", "Beside the paper", title, caption, heads, rows, 1, 7, 8)


def _find_paper_rows(make: TableBuilder, place: Place) -> list[PaperRow]:
    """The paper's rows of an arm: of the same model, or of each where it does not have ours."""
    study, axes = make.results.paper, make.axes_of[place.point]
    varied = (v for name, v in axes.items() if name.split(".")[-1] == "steps" and isinstance(v, int))
    steps = next(varied, None)
    if paper_model(place.model) is not None:
        row = find(study, place.model, place.arm, steps)
        return [row] if row else []
    return [row for row in paper_rows(study) if row.arm == place.arm and steps in (None, row.steps)]


def calibration_tables(make: TableBuilder) -> list[StudyTable]:
    """Calibration of the logged tokens, in all and by the student's probability."""
    caption = (
        "Middle replies; the teacher agrees with a token if it gives it at least half the student's "
        "probability. AUROC: of one token it disagrees with and one it agrees with, how often the first has "
        "the higher entropy; its interval is that of a run, averaged over seeds. Mean ± sample standard "
        "deviation over seeds."
    )
    rows = []
    for place in make.places:
        logs = [(c, b) for c in make.cells(place) for b in (c.tokens or {}).get("bins", [])]
        group = ", ".join(part for part in (make.group(place), place.arm) if part)
        for low, high in sorted({(b["low"], b["high"]) for _, b in logs}):
            path = make.path("bins", place, f"{low:g}-{high:g}")
            entries = _means(path, [(cell, b) for cell, b in logs if b["low"] == low], BINS)
            rows.append(Row(f"{low:g} to {high:g}", entries, group))
    title, heads = "Tokens by the student's probability of them", ("probability", *BINS.values())
    bins = study_table("bins", "Tokens", title, "", heads, rows, fold=True)
    rows = []
    for place, logs in _collect_logs(make, "tokens"):
        path = make.path("calibration", place)
        low, high = (end[:1] for end in _means(path, logs, ("auroc_low", "auroc_high")))
        interval = EMPTY if EMPTY in (low, high) else ("[", *low, ", ", *high, "]")
        rows.append(make.row(place, [*_means(path, logs, CALIBRATION), interval]))
    heads = ("arm", *CALIBRATION.values(), "95% interval")
    return [study_table("calibration", "Tokens", "Is entropy calibrated?", caption, heads, rows), bins]


def gradient_table(make: TableBuilder) -> StudyTable:
    logged = _collect_logs(make, "gradients")
    rows = [make.row(p, _means(make.path("gradients", p), logs, GRADIENTS)) for p, logs in logged]
    caption = "The gradient of the middle turns, split into that of the kept and of the dropped tokens."
    caption, heads = f"{caption} Mean ± sd over seeds.", ("arm", *GRADIENTS.values())
    return study_table("gradients", "Gradients", "What the mask drops", caption, heads, rows)


def _collect_logs(make: TableBuilder, log: str) -> list[tuple[Place, Logs]]:
    logged = [(p, [(c, getattr(c, log)) for c in make.cells(p) if getattr(c, log)]) for p in make.places]
    return [(place, logs) for place, logs in logged if logs]


def _means(path: tuple[object, ...], logs: Logs, columns: Iterable[str]) -> list[Entry]:
    entries = []
    for key in columns:
        known = [(cell, value) for cell, log in logs if (value := finite(log.get(key))) is not None]
        entries.append(mean_entry((*path, key), known, whole if key in ("tokens", "count") else plain))
    return entries


def verdict_lines(results: Results, effects: Effects | None = None) -> list[str]:
    """What the study found in plain sentences: gains, losses, what may be chance, single seeds, power."""
    make, lines = TableBuilder(results, effects), []
    phrases = {
        "gain": f"gain over {results.reference}",
        "loss": f"loss against {results.reference}",
        "inside run-to-run variation": f"inside run-to-run variation of {results.reference}",
        "no spread over seeds": f"no spread over seeds to judge by (against {results.reference})",
        "single seed": f"single seed, so nothing can be said beyond these runs (against {results.reference})",
    }
    for view in make.views:
        for verdict in VERDICTS:
            those = [(p, effect) for p, effect in make.effects[view].items() if effect.verdict == verdict]
            short = len(those) > MANY and verdict not in ("gain", "loss")  # the table has the rest
            some = [_describe_effect(make, place, effect, short) for place, effect in those]
            lines += [f"{view.upper()}, {phrases[verdict]}: {'; '.join(some)}."] if some else []
    lines += [line for view in make.views if (line := _describe_changes(make, view))]
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
        for place, effect in make.effects[view].items():
            where = "" if make.single else f"{place.where}, "
            lines.append(f"{where}{view.upper()}: {effect.sentence}.")
    return lines


def _family(make: TableBuilder, view: str) -> str:
    size = max((effect.family for effect in make.effects[view].values()), default=0)
    return "this one comparison" if size == 1 else f"all {size} comparisons of this view"


def _describe_changes(make: TableBuilder, view: str) -> str:
    """What training changed: an arm alone, or the least and the most of several."""
    changes = {place: change for place in make.places if (change := make.change(place, view))}
    ends = sorted(changes, key=lambda place: changes[place].delta)
    parts = []
    for place in ends if len(ends) < 2 else (ends[0], ends[-1]):
        low, high = (points(end) for end in (changes[place].low, changes[place].high))
        parts.append(f"{points(changes[place].delta)} points [{low}, {high}] ({make.label(place)})")
    return f"{view.upper()}, against the model before training: {' to '.join(parts)}." if parts else ""


def _describe_effect(make: TableBuilder, place: Place, effect: Comparison, short: bool) -> str:
    text, over = f"{make.label(place)} {points(effect.delta)}", effect.clustered
    if short:
        return text
    interval = f" [{points(over.low)}, {points(over.high)}]" if over else ""
    test = "" if math.isnan(effect.p_adjusted) else f", adjusted p {p_value(effect.p_adjusted)}"
    return f"{text} points{interval}{test}"


def _design(make: TableBuilder, view: str, places: list[Place]) -> tuple[Design | None, int, list[Cell]]:
    """Root mean squares of the comparisons' spreads, the fewest seeds of an arm, and their runs."""
    designs, seeds = [], []
    cells: dict[str, Cell] = {}
    for place in places:
        effect = make.effects[view].get(place)
        if effect and effect.clustered and min(effect.seeds) > 1:
            designs.append(design(*make.matrices(place, view)))
            seeds.append(min(effect.seeds))
            cells |= {cell.source.folder: cell for cell in make.compared("", place, view).cells}
    if not designs:
        return None, 0, []
    typical = np.sqrt(np.mean([(d.seed_sd**2, d.discordance**2, d.noise**2) for d in designs], axis=0))
    return Design(designs[0].items, *typical.tolist()), min(seeds), list(cells.values())


def _unsigned(share: float) -> str:
    return points(share, sign=False)


def _decimals(digits: int, value: float) -> str:
    return "n/a" if math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"

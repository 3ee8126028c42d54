"""Figures of a study: accuracy of every arm, its difference from the reference, models, seeds, axes.

Accuracies are in percent and differences in points, with intervals over seeds; hollow diamonds are the
paper's numbers, if the study repeats one of the paper's. Intervals over items and tests are in the tables.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smopd.formatting import percent, points
from smopd.study.drawing import INK, MARKERS, MUTED, Figure, GridPoint, Plot, dot, name_rows, note

from smopd.study.drawing import schematic, settings, spread, tint, words  # isort: skip
from smopd.study.figures_training import training_figures
from smopd.study.results import Results
from smopd.study.statistics import mean_sd


def make_figures(results: Results) -> list[Figure]:
    figures = [ablation(results), effects(results), cross_scale(results), seeds(results)]
    figures += [axis_figure(results, setting) for setting in results.axes]
    return [schematic(), *filter(None, figures), *training_figures(results)]


def _place_rows(rows: Sequence[str], views: Sequence[str], height: float) -> Iterator[tuple[str, str, float]]:
    """Yield (arm, view, y): an arm's views lie one below the other around its row."""
    for (row, arm), (place, view) in product(enumerate(rows), enumerate(views)):
        yield arm, view, row + (place - (len(views) - 1) / 2) * height


def ablation(results: Results) -> Figure | None:
    """Bars of every view and arm, one panel per model and point; None if one arm runs over an axis."""
    plot, views = Plot(results), results.views
    if not plot.spots or (len(results.arms) == 1 and len(results.points()) > 1):
        return None
    names = ["base"] * any(plot.cells(spot, "base") for spot in plot.spots) + plot.arms
    thick = 0.84 / len(views)

    def panel(axes: Axes, spot: GridPoint) -> None:
        for arm, view, y in _place_rows(names, views, thick):
            estimate, name = spread(plot.percents(plot.cells(spot, arm), view)), spot.number(arm, view)
            if estimate is None:
                continue
            colour, end = plot.colours[arm], estimate.mean
            axes.barh(y, estimate.mean, thick * 0.92, lw=0, **plot.bar_style(colour, view))
            if arm == "base":  # it has no seeds, so no point that shows their number
                plot.add(name, estimate)
            else:
                end = plot.mean_point(axes, name, estimate, y, colour, "o", 3.2)
            value = plot.paper_point(axes, spot, arm, view, y + 0.28 * thick)
            text = percent(estimate.mean / 100).removesuffix("%")  # rounded as in the tables
            note(axes, text, (min(max(end, value or 0), 103), y), (6, 0), va="center")
        name_rows(axes, names, "accuracy, %", words(spot.label, 40, 2))
        axes.set(xlim=(0, 114), xticks=range(0, 101, 25))

    keys = [Patch(lw=0, label=view.upper(), **plot.bar_style(MUTED, view)) for view in views]
    height = max(2.4, 1.1 + len(names) * (0.16 * len(views) + 0.12))
    texts = {"views": _join_views(views)}
    return plot.figure("ablation", texts, plot.spots, panel, height, keys, sharey=True)


def effects(results: Results) -> Figure | None:
    plot = Plot(results)
    arms, views = plot.treatments, plot.views
    places = [spot for spot in plot.spots if any(plot.delta(spot, arm, v) for arm in arms for v in views)]
    if not places:
        return None
    step = 0.72 / len(views)
    looks = {view: (MARKERS[i % 6], 0.35 if i else 0.0) for i, view in enumerate(views)}

    def panel(axes: Axes, spot: GridPoint) -> None:
        axes.axvline(0, color=MUTED, lw=0.9)
        for arm, view, y in _place_rows(arms, views, step):
            delta, name = plot.delta(spot, arm, view), spot.number(arm, view, "delta")
            if delta is None:
                continue
            marker, pale = looks[view]
            plot.mean_point(axes, name, delta, y, tint(plot.colours[arm], pale), marker)
            text = points(delta.mean / 100).replace("-", "\u2212")  # the minus of the axes
            shown = note(axes, text, (delta.mean, y), (0, 4.5), ha="center", fontsize=6.5)
            # The zero line must not run through it.
            shown.set_bbox({"fc": "white", "ec": "none", "pad": 0.3})
            plot.paper_point(axes, spot, arm, view, y + 0.3 * step, delta=True)
        difference = words(f"difference from {results.reference}, points", 44, 2)
        name_rows(axes, arms, difference, words(spot.label, 40, 2))
        axes.margins(x=0.12)

    keys = [dot(marker, tint(MUTED, pale), view.upper()) for view, (marker, pale) in looks.items()]
    height = max(2.2, 1.1 + len(arms) * (0.24 * len(views) + 0.1))
    form: dict[str, Any] = {"whisker": "over_both", "sharex": True, "sharey": True}
    return plot.figure("effects", {"reference": results.reference}, places, panel, height, keys, **form)


def cross_scale(results: Results) -> Figure | None:
    """Difference from the reference by model, one panel per point of the axes; needs two models."""
    plot = Plot(results)
    arms, view = plot.treatments, plot.views[0]
    places = [spot for spot in plot.spots if any(plot.delta(spot, arm, view) for arm in arms)]
    models = [model for model in results.models if any(spot.model == model for spot in places)]
    at = [point for point in results.points() if any(spot.point == point for spot in places)]
    if len(models) < 2:
        return None

    def panel(axes: Axes, point: dict[str, Any]) -> None:
        axes.axhline(0, color=MUTED, lw=0.9)
        for place, arm in enumerate(arms):
            shift = (place - (len(arms) - 1) / 2) * min(0.16, 0.7 / len(arms))
            line, colour = [], plot.colours[arm]
            for spot in (s for s in places if s.point == point):
                x, name = models.index(spot.model) + shift, spot.number(arm, view, "delta")
                if (delta := plot.delta(spot, arm, view)) is not None:
                    line.append((x, delta.mean))
                    plot.mean_point(axes, name, delta, x, colour, plot.shapes[arm], upright=True)
                    plot.paper_point(axes, spot, arm, view, x + 0.05, upright=True, delta=True)
            if line:
                axes.plot(*zip(*line, strict=True), color=tint(colour, 0.5), lw=0.9, zorder=1)
        axes.set_xticks(range(len(models)), [words(model, 14) for model in models])
        axes.set(xlim=(-0.5, len(models) - 0.5), title=words(", ".join(settings(point)), 40, 2))
        axes.grid(axis="y")

    difference = words(f"{view.upper()}: difference from {results.reference}, points", 46)
    keys = [dot(plot.shapes[arm], plot.colours[arm], arm) for arm in arms]
    texts = {"view": view.upper(), "reference": results.reference}
    form: dict[str, Any] = {"whisker": "over_both", "ylabel": difference, "sharey": True}
    return plot.figure("cross-scale", texts, at, panel, 3.6, keys, **form)


def seeds(results: Results) -> Figure | None:
    """Every seed as a point, with mean and sample standard deviation; needs an arm with two seeds."""
    plot = Plot(results)
    arms, places, view = plot.arms, plot.spots, plot.views[0]
    if not any(len(plot.percents(plot.cells(spot, arm), view)) > 1 for spot in places for arm in arms):
        return None

    def panel(axes: Axes, spot: GridPoint) -> None:
        for row, arm in enumerate(arms):
            cells = [cell for cell in plot.cells(spot, arm) if cell.right.get(view)]
            values, name, colour = plot.percents(cells, view), spot.number(arm, view), plot.colours[arm]
            if not values:
                continue
            last, (mean, sd) = len(values) - 1, mean_sd(values)
            where = [row + 0.26 * (2 * i / last - 1) if last else row for i in range(len(values))]
            look: dict[str, Any] = {"mfc": tint(colour, 0.45), "mec": colour, "mew": 0.6, "ms": 3.8}
            axes.plot(values, where, marker=plot.shapes[arm], ls="none", **look)
            axes.plot([mean, mean], [row - 0.34, row + 0.34], color=colour, lw=2.4, solid_capstyle="butt")
            facts = {"mean": mean} | {f"seed {c.seed}": v for c, v in zip(cells, values, strict=True)}
            if last:
                axes.errorbar(mean, row, xerr=sd, color=INK, lw=1, capsize=3)
                facts["sd"] = sd
            plot.numbers.extend((f"{name}/{key}", value) for key, value in facts.items())
            if (paper := plot.printed(spot, arm)) and (value := paper.accuracy(view)) is not None:
                thin: dict[str, Any] = {"color": MUTED, "elinewidth": 0.8, "capsize": 2, "fmt": "none"}
                axes.errorbar(value, row + 0.42, xerr=paper.sd(view), **thin)
            plot.paper_point(axes, spot, arm, view, row + 0.42)
        name_rows(axes, arms, f"{view.upper()} accuracy, %", words(spot.label, 40, 2))
        axes.margins(x=0.08)

    tick = Line2D([], [], color=MUTED, marker="|", ms=9, mew=2.4, ls="none", label="mean over seeds")
    bar = Line2D([], [], color=INK, lw=1, label="± sample standard deviation")
    keys = [dot("o", MUTED, "one seed"), tick, bar]
    texts, height = {"view": view.upper()}, max(2.4, 1.2 + 0.5 * len(arms))
    return plot.figure("seeds", texts, places, panel, height, keys, sharex=True, sharey=True)


def axis_figure(results: Results, setting: str) -> Figure | None:
    """Accuracy against the values of one axis, a line per arm; needs results for two values."""
    plot = Plot(results)
    values = [v for v in results.axes[setting] if any(cell.axes.get(setting) == v for cell in results.cells)]
    arms, views = plot.arms, plot.views
    if len(values) < 2:
        return None
    groups: dict[str, list[GridPoint]] = {}  # points that differ only in this axis share a panel
    for spot in plot.spots:
        rest = {k: v for k, v in spot.point.items() if k != setting}
        groups.setdefault(", ".join([spot.model, *settings(rest)]), []).append(spot)
    positions, labels = positions_of(values)
    # With one or two arms, a panel shows all views; with more, only one.
    together = len(arms) <= 2 and len(views) > 1
    parts = [views] if together else [[view] for view in results.views]
    closest, extent = min(b - a for a, b in pairwise(sorted(positions))), max(positions) - min(positions)
    beside = 0.025 * extent  # offset of the paper's points
    near = min(0.03 * extent, 0.4 * closest / len(arms))

    looks = {(arm, view): (plot.colours[arm], plot.shapes[arm], "-") for arm in arms for view in views}
    for arm, (place, view) in product(arms, enumerate(views if together else ())):
        dashes = ("-", "--", ":", "-.")[place % 4]
        looks[arm, view] = tint(plot.colours[arm], 0.3 * place), MARKERS[place % 6], dashes

    def panel(axes: Axes, one: tuple[str, list[str]]) -> None:
        name, part = one
        for arm, view in product(arms, part):
            (colour, marker, dashes), path = looks[arm, view], []
            shift = (arms.index(arm) - (len(arms) - 1) / 2) * near
            for spot in groups[name]:
                seeds, number = plot.percents(plot.cells(spot, arm), view), spot.number(arm, view)
                estimate, x = spread(seeds), positions[values.index(spot.point[setting])] + shift
                if estimate is None:
                    continue
                path.append((x, estimate.mean))
                if estimate.seeds > 1:
                    small: dict[str, Any] = {"marker": ".", "ms": 3.5, "mew": 0, "ls": "none", "zorder": 2}
                    axes.plot([x + 0.4 * near] * len(seeds), seeds, color=colour, **small)
                plot.mean_point(axes, number, estimate, x, colour, marker, 4.6, upright=True)
                plot.paper_point(axes, spot, arm, view, x + beside, upright=True)
            if path:
                axes.plot(*zip(*path, strict=True), color=colour, ls=dashes, lw=1.2, zorder=1.5)
        title = [name] * (len(groups) > 1) + [part[0].upper()] * (len(parts) > 1)
        axes.set_xticks(positions, labels)
        axes.set(xlabel=setting, title=words(", ".join(title), 40, 2))
        axes.grid()

    keys = []
    for arm, view in product(arms, views if together else views[:1]):
        colour, marker, _ = looks[arm, view]
        named = [arm] * (len(arms) > 1 or not together) + [view.upper()] * together
        keys.append(dot(marker, colour, ", ".join(named)))
    name, title = ("steps", "training steps") if setting == "train.steps" else (f"axis-{setting}", setting)
    texts = {"views": _join_views(results.views), "setting": setting, "title": title}
    shown = [(group, part) for group in groups for part in parts]
    return plot.figure("axis", texts, shown, panel, 3.4, keys, name=name, ylabel="accuracy, %", sharey=True)


def positions_of(values: Sequence[Any]) -> tuple[list[float], list[str]]:
    """Positions and labels of an axis's values: to scale if the labels stay apart, else even."""
    labels, even = [words(value, 14) for value in values], list(map(float, range(len(values))))
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return even, labels
    places = [float(v) for v in values]
    if min(places) > 0 and max(places) / min(places) >= 50:
        places = [log10(v) for v in places]
    nearest = min(b - a for a, b in pairwise(sorted(places)))
    # Labels of values closer than this share of the range would overlap.
    return (places if nearest > 0.06 * (max(places) - min(places)) else even), labels


def _join_views(views: Sequence[str]) -> str:
    """Join views for a sentence: "FULL, SHARDED and TEACHER"."""
    *others, last = (view.upper() for view in views)
    return f"{', '.join(others)} and {last}" if others else last

"""The figures of a study: accuracy of every arm, its difference from the reference, models, seeds, axes.

Accuracies are in percent and differences in percentage points, over seeds; the paper's numbers stand beside
ours as hollow diamonds where the study repeats one of the paper's. What was logged in training is drawn in
figures_training.py. It leaves out intervals over items and every test: the tables have those.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smopd.formatting import percent, points
from smopd.study.drawing import INK, MUTED, Figure, name_rows, schematic, spread, tint, words
from smopd.study.figures_training import calibration_figures, curve_figures, gradient_figures
from smopd.study.plot import (
    OVER_BOTH,
    VIEW_MARKERS,
    Plot,
    Spot,
    dot,
    label,
    listed,
    panel_size,
    panels,
    settings,
)
from smopd.study.results import Results
from smopd.study.statistics import mean_sd

CLOSE = 0.06  # values nearer than this share of the range would have labels on top of each other


def make_figures(results: Results) -> list[Figure]:
    """Every figure that the results can support, the schematic of the method first."""
    made = [ablation(results), effects(results), cross_scale(results), seeds(results)]
    made += [axis_figure(results, setting) for setting in results.axes]
    made += [*curve_figures(results), *calibration_figures(results), *gradient_figures(results)]
    return [schematic(), *(figure for figure in made if figure is not None)]


def ablation(results: Results) -> Figure | None:
    """Bars of every view, arm by arm, one panel a model and point; none where one arm runs over an axis."""
    plot = Plot(results)
    if not plot.spots or not results.views or (len(results.arms) == 1 and len(results.points()) > 1):
        return None
    based = {cell.model: cell for cell in results.base}
    names = (["base"] if any(spot.model in based for spot in plot.spots) else []) + plot.arms
    thick = 0.84 / len(results.views)

    def panel(axes: Axes, spot: Spot) -> None:
        for row, arm in enumerate(names):
            untrained = arm == "base" and spot.model in based
            cells, colour = [based[spot.model]] if untrained else plot.cells(spot, arm), plot.colours[arm]
            for place, view in enumerate(results.views):
                found, name = spread(plot.percents(cells, view)), label(spot, arm, view)
                if found is None:
                    continue
                y = row + (place - (len(results.views) - 1) / 2) * thick
                axes.barh(y, found.mean, thick * 0.92, lw=0, **plot.bar_style(colour, view))
                end = found.mean
                if arm == "base":  # it has no seeds, so its bar needs no point that says how many there were
                    plot.add(name, found)
                else:
                    end = plot.mean_point(axes, name, found, y, colour, "o", 3.2)
                value = plot.printed_accuracy(spot, arm, view)
                if value is not None:
                    plot.paper_point(axes, name, value, value, y + 0.28 * thick)
                    end = max(end, value)
                text = percent(found.mean / 100).removesuffix("%")  # rounded as the tables round
                place_at: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate(text, (min(end, 103), y), **place_at, fontsize=7)
        name_rows(axes, names)
        axes.set(xlim=(0, 114), xticks=range(0, 101, 25), xlabel="accuracy, %")
        axes.set_title(words(spot.label, 40, 2))
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        panels(sheet, plot.spots, panel, sharey=True)
        plot.key(sheet, [Patch(lw=0, label=v.upper(), **plot.bar_style(MUTED, v)) for v in results.views])

    size = panel_size(len(plot.spots), max(2.4, 1.1 + len(names) * (0.16 * len(results.views) + 0.12)))
    caption = f"Share of right answers by arm in {listed(results.views)}."
    return plot.finish("ablation", "Accuracy by arm", caption, size, draw)


def effects(results: Results) -> Figure | None:
    """Difference of every arm from the reference, with the 95% interval."""
    plot = Plot(results)
    arms, views = plot.treatments, plot.views
    places = [spot for spot in plot.spots if any(plot.delta(spot, arm, v) for arm in arms for v in views)]
    if not places:
        return None
    step = 0.72 / len(views)
    looks = [(VIEW_MARKERS[i % len(VIEW_MARKERS)], 0.35 if i else 0.0) for i in range(len(views))]

    def panel(axes: Axes, spot: Spot) -> None:
        axes.axvline(0, color=MUTED, lw=0.9)
        for row, arm in enumerate(arms):
            for place, view in enumerate(views):
                found, name = plot.delta(spot, arm, view), label(spot, arm, view, "delta")
                if found is None:
                    continue
                y, (marker, pale) = row + (place - (len(views) - 1) / 2) * step, looks[place]
                plot.mean_point(axes, name, found, y, tint(plot.colours[arm], pale), marker, 5)
                text = points(found.mean / 100).replace("-", "\u2212")  # the minus that the axes have
                above: dict[str, Any] = {"xytext": (0, 4.5), "textcoords": "offset points", "ha": "center"}
                note = axes.annotate(text, (found.mean, y), **above, fontsize=6.5)
                # The zero line must not run through it.
                note.set_bbox({"fc": "white", "ec": "none", "pad": 0.3})
                value = plot.printed_delta(spot, arm, view)
                if value is not None:
                    plot.paper_point(axes, name, value, value, y + 0.3 * step)
        name_rows(axes, arms)
        axes.margins(x=0.12)
        difference = words(f"difference from {results.reference}, points", 44, 2)
        axes.set(xlabel=difference, title=words(spot.label, 40, 2))
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        panels(sheet, places, panel, sharex=True, sharey=True)
        named = zip(looks, views, strict=True)
        plot.key(sheet, [dot(marker, tint(MUTED, pale), view.upper()) for (marker, pale), view in named])

    size = panel_size(len(places), max(2.2, 1.1 + len(arms) * (0.24 * len(views) + 0.1)))
    caption = f"Difference of every arm from {results.reference}, in percentage points."
    return plot.finish("effects", f"Effect against {results.reference}", caption, size, draw, OVER_BOTH)


def cross_scale(results: Results) -> Figure | None:
    """Difference from the reference by model, one panel a point of the axes; for two models and more."""
    plot = Plot(results)
    arms, view = plot.treatments, plot.views[0] if plot.views else ""
    places = [spot for spot in plot.spots if view and any(plot.delta(spot, arm, view) for arm in arms)]
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
                found, x = plot.delta(spot, arm, view), models.index(spot.model) + shift
                if found is None:
                    continue
                line.append((x, found.mean))
                name = label(spot, arm, view, "delta")
                plot.mean_point(axes, name, found, x, colour, plot.shapes[arm], 5, upright=True)
                value = plot.printed_delta(spot, arm, view)
                if value is not None:
                    plot.paper_point(axes, name, value, x + 0.05, value)
            if line:
                axes.plot(*zip(*line, strict=True), color=tint(colour, 0.5), lw=0.9, zorder=1)
        axes.set_xticks(range(len(models)), [words(model, 14) for model in models])
        axes.set_xlim(-0.5, len(models) - 0.5)
        axes.set_title(words(", ".join(settings(point)), 40, 2))
        axes.grid(axis="y")

    def draw(sheet: Sheet) -> None:
        panels(sheet, at, panel, sharey=True)
        difference = f"{view.upper()}: difference from {results.reference}, points"
        sheet.supylabel(words(difference, 46), fontsize=8)
        plot.key(sheet, [dot(plot.shapes[arm], plot.colours[arm], arm) for arm in arms])

    caption = f"Difference of {view.upper()} from {results.reference} by model, in percentage points."
    size = panel_size(len(at), 3.6)
    return plot.finish("cross-scale", "Effect across models", caption, size, draw, OVER_BOTH)


def seeds(results: Results) -> Figure | None:
    """Every seed as a point, their mean and sample standard deviation; drawn where some arm has two seeds."""
    plot = Plot(results)
    arms, places, view = plot.arms, plot.spots, plot.views[0] if plot.views else ""
    if not any(len(plot.percents(plot.cells(spot, arm), view)) > 1 for spot in places for arm in arms):
        return None

    def panel(axes: Axes, spot: Spot) -> None:
        for row, arm in enumerate(arms):
            cells = [cell for cell in plot.cells(spot, arm) if cell.right.get(view)]
            values, name, colour = plot.percents(cells, view), label(spot, arm, view), plot.colours[arm]
            if not values:
                continue
            last = len(values) - 1
            where = [row + 0.26 * (2 * i / last - 1) if last else row for i in range(len(values))]
            look: dict[str, Any] = {"mfc": tint(colour, 0.45), "mec": colour, "mew": 0.6, "ms": 3.8}
            axes.plot(values, where, marker=plot.shapes[arm], ls="none", **look)
            mean, sd = mean_sd(values)
            axes.plot([mean, mean], [row - 0.34, row + 0.34], color=colour, lw=2.4, solid_capstyle="butt")
            plot.numbers.append((f"{name}/mean", mean))
            plot.numbers.extend((f"{name}/seed {c.seed}", v) for c, v in zip(cells, values, strict=True))
            if last:
                axes.errorbar(mean, row, xerr=sd, color=INK, lw=1, capsize=3)
                plot.numbers.append((f"{name}/sd", sd))
            paper, value = plot.printed(spot, arm), plot.printed_accuracy(spot, arm, view)
            if paper and value is not None:
                thin: dict[str, Any] = {"color": MUTED, "elinewidth": 0.8, "capsize": 2, "fmt": "none"}
                axes.errorbar(value, row + 0.42, xerr=paper.sd(view), **thin)
                plot.paper_point(axes, name, value, value, row + 0.42)
        name_rows(axes, arms)
        axes.margins(x=0.08)
        axes.set(xlabel=f"{view.upper()} accuracy, %", title=words(spot.label, 40, 2))
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        panels(sheet, places, panel, sharex=True, sharey=True)
        tick = Line2D([], [], color=MUTED, marker="|", ms=9, mew=2.4, ls="none", label="mean over seeds")
        bar = Line2D([], [], color=INK, lw=1, label="± sample standard deviation")
        plot.key(sheet, [dot("o", MUTED, "one seed"), tick, bar], "")

    caption = f"{view.upper()} accuracy of every seed, with mean and sample standard deviation."
    caption += " The axis does not begin at zero."
    size = panel_size(len(places), max(2.4, 1.2 + 0.5 * len(arms)))
    return plot.finish("seeds", "Spread over seeds", caption, size, draw, "")


def axis_figure(results: Results, setting: str) -> Figure | None:
    """Accuracy against the values of one axis, a line an arm; drawn where two values have results."""
    plot = Plot(results)
    values = [v for v in results.axes[setting] if any(cell.axes.get(setting) == v for cell in results.cells)]
    arms, views = plot.arms, plot.views
    if len(values) < 2 or not views:
        return None
    rests: list[tuple[str, dict[str, Any], list[Spot]]] = []  # model, the other axes, the spots of a panel
    for spot in plot.spots:
        rest = {k: v for k, v in spot.point.items() if k != setting}
        group = next((group for *first, group in rests if first == [spot.model, rest]), None)
        if group is None:
            rests.append((spot.model, rest, group := []))
        group.append(spot)
    positions, labels = positions_of(values)
    # Two arms at most share a panel with every view; with more, a panel is a view.
    together = len(arms) <= 2 and len(views) > 1
    parts = [views] if together else [[view] for view in results.views]
    shown = [(model, rest, group, part) for model, rest, group in rests for part in parts]
    closest, extent = min(b - a for a, b in pairwise(sorted(positions))), max(positions) - min(positions)
    beside = 0.025 * extent  # the paper's points, from ours
    near = min(0.03 * extent, 0.4 * closest / len(arms))

    def look(arm: str, view: str) -> tuple[str, str, str]:
        """Colour, marker and dashes of a line."""
        place = views.index(view)
        if not together:
            return plot.colours[arm], plot.shapes[arm], "-"
        marker, dashes = VIEW_MARKERS[place % len(VIEW_MARKERS)], ("-", "--", ":", "-.")[place % 4]
        return tint(plot.colours[arm], 0.3 * place), marker, dashes

    def line(axes: Axes, group: list[Spot], arm: str, view: str, shift: float) -> None:
        colour, marker, dashes = look(arm, view)
        path = []
        for spot in group:
            own, name = plot.percents(plot.cells(spot, arm), view), label(spot, arm, view)
            found, x = spread(own), positions[values.index(spot.point[setting])] + shift
            if found is None:
                continue
            path.append((x, found.mean))
            if found.seeds > 1:
                small: dict[str, Any] = {"marker": ".", "ms": 3.5, "mew": 0, "ls": "none", "zorder": 2}
                axes.plot([x + 0.4 * near] * len(own), own, color=colour, **small)
            plot.mean_point(axes, name, found, x, colour, marker, 4.6, upright=True)
            value = plot.printed_accuracy(spot, arm, view)
            if value is not None:
                plot.paper_point(axes, name, value, x + beside, value)
        if path:
            axes.plot(*zip(*path, strict=True), color=colour, ls=dashes, lw=1.2, zorder=1.5)

    def panel(axes: Axes, one: tuple[str, dict[str, Any], list[Spot], list[str]]) -> None:
        model, rest, group, part = one
        for i, arm in enumerate(arms):
            for view in part:
                line(axes, group, arm, view, (i - (len(arms) - 1) / 2) * near)
        title = [model, *settings(rest)] if len(rests) > 1 else []
        axes.set_title(words(", ".join(title + ([part[0].upper()] if len(parts) > 1 else [])), 40, 2))
        axes.set_xticks(positions, labels)
        axes.set_xlabel(setting)
        axes.grid()

    def draw(sheet: Sheet) -> None:
        panels(sheet, shown, panel, sharey=True)
        sheet.supylabel("accuracy, %", fontsize=8)
        keys = []
        for arm in arms:
            for view in views if together else views[:1]:
                colour, marker, _ = look(arm, view)
                of_arm = [arm] if len(arms) > 1 or not together else []
                keys.append(dot(marker, colour, ", ".join(of_arm + ([view.upper()] if together else []))))
        plot.key(sheet, keys)

    name = "steps" if setting == "train.steps" else f"axis-{setting}"
    title = "Accuracy against training steps" if name == "steps" else f"Accuracy against {setting}"
    caption = f"Accuracy in {listed(results.views)} against {setting}; small dots are single seeds."
    caption += " The axis does not begin at zero."
    return plot.finish(name, title, caption, panel_size(len(shown), 3.4), draw)


def positions_of(values: Sequence[Any]) -> tuple[list[float], list[str]]:
    """Where the values of an axis stand and their labels: to scale if that can be read, else evenly."""
    labels = [words(value, 14) for value in values]
    even = [float(i) for i in range(len(values))]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return even, labels
    places = [float(v) for v in values]
    if min(places) > 0 and max(places) / min(places) >= 50:
        places = [log10(v) for v in places]
    ordered = sorted(places)
    nearest = min(b - a for a, b in pairwise(ordered))
    return (places, labels) if nearest > CLOSE * (ordered[-1] - ordered[0]) else (even, labels)

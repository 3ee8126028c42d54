"""The figures of a study: accuracy of every arm, its difference from the reference, models side by side, and
seeds.

Accuracies are in percent and differences in percentage points, over seeds; the paper's numbers stand beside
ours as hollow diamonds where the study repeats one of the paper's. The values of an axis are drawn in
figures_axes.py, what was logged in training in figures_training.py. It leaves out
intervals over items and every test: the tables have those.
"""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smopd.formatting import percent
from smopd.study.drawing import (
    INK,
    MUTED,
    Figure,
    Spot,
    arm_colours,
    arm_markers,
    grid,
    legend,
    name_rows,
    paper_row,
    percents,
    primary,
    schematic,
    shown,
    spots,
    spread,
    tint,
    words,
)
from smopd.study.figures_axes import axis_figure
from smopd.study.figures_training import calibration_figures, curve_figures, gradient_figures
from smopd.study.marks import (
    OVER_BOTH,
    PAPER,
    VIEW_MARKERS,
    Marks,
    Numbers,
    arms_with_results,
    bar_style,
    delta,
    dot,
    finish,
    label,
    listed,
    mean_point,
    panel_size,
    paper_delta,
    signed,
    spread_numbers,
)
from smopd.study.results import Results
from smopd.study.statistics import mean_sd

__all__ = ["Figure", "make_figures"]


def make_figures(results: Results) -> list[Figure]:
    """Every figure that the results can support, the schematic of the method first."""
    made: list[Figure | None] = [ablation(results), effects(results), cross_scale(results), seeds(results)]
    made += [axis_figure(results, setting) for setting in results.axes]
    drawn = [figure for figure in made if figure is not None]
    return [
        schematic(),
        *drawn,
        *curve_figures(results),
        *calibration_figures(results),
        *gradient_figures(results),
    ]


def ablation(results: Results) -> Figure | None:
    """Bars of every view, arm by arm, one panel a model and point; none where one arm runs over an axis."""
    places = spots(results)
    names = arms_with_results(results)
    if not places or not results.views or (len(results.arms) == 1 and len(results.points()) > 1):
        return None
    based = {cell.model: cell for cell in results.base}
    names = (["base"] if any(spot.model in based for spot in places) else []) + names
    colours, numbers = arm_colours(results), Numbers()
    thick = 0.84 / len(results.views)
    marks = Marks()

    def panel(axes: Axes, spot: Spot) -> None:
        for row, arm in enumerate(names):
            cells = (
                [based[spot.model]]
                if arm == "base" and spot.model in based
                else results.group(spot.model, arm, spot.point)
            )
            for place, view in enumerate(results.views):
                found = spread(percents(results, cells, view))
                if found is None:
                    continue
                y = row + (place - (len(results.views) - 1) / 2) * thick
                axes.barh(y, found.mean, thick * 0.92, lw=0, **bar_style(colours[arm], results, view))
                # A base model has no seeds: its bar needs no point that says how many there were.
                end = (
                    found.mean if arm == "base" else mean_point(axes, found, y, colours[arm], "o", 3.2, marks)
                )
                paper = paper_row(results, spot, arm)
                value = paper.accuracy(view) if paper else None
                if value is not None:
                    axes.plot(value, y + 0.28 * thick, **PAPER)
                    numbers.append((label(spot, arm, view, "paper"), value))
                    end, marks.paper = max(end, value), True
                told = percent(found.mean / 100).removesuffix("%")  # rounded as the tables round
                axes.annotate(
                    told, (min(end, 103), y), (6, 0), textcoords="offset points", va="center", fontsize=7
                )
                numbers.extend(spread_numbers(found, spot, arm, view))
        name_rows(axes, names)
        axes.set(
            xlim=(0, 114), xticks=range(0, 101, 25), xlabel="accuracy, %", title=words(spot.label, 40, 2)
        )
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        for axes, spot in zip(grid(sheet, len(places), sharey=True), places, strict=True):
            panel(axes, spot)
        keys = [Patch(lw=0, label=shown(view), **bar_style(MUTED, results, view)) for view in results.views]
        legend(sheet, [*keys, *marks.keys("o")])

    tall = 1.1 + len(names) * (0.16 * len(results.views) + 0.12)
    size = panel_size(len(places), max(2.4, tall))
    caption = f"Share of right answers by arm in {listed(results.views)}."
    return finish("ablation", "Accuracy by arm", caption, numbers, size, draw, marks)


def effects(results: Results) -> Figure | None:
    """Difference of every arm from the reference, with the 95% interval."""
    arms = [arm for arm in arms_with_results(results) if arm != results.reference]
    places = [
        spot
        for spot in spots(results)
        if any(delta(results, spot, arm, v) for arm in arms for v in results.views)
    ]
    if not places:
        return None
    colours, numbers, marks = arm_colours(results), Numbers(), Marks()
    views = sorted(results.views, key=lambda view: view != primary(results))
    step = 0.72 / len(views)

    def panel(axes: Axes, spot: Spot) -> None:
        axes.axvline(0, color=MUTED, lw=0.9)
        for row, arm in enumerate(arms):
            for place, view in enumerate(views):
                found = delta(results, spot, arm, view)
                if found is None:
                    continue
                y = row + (place - (len(views) - 1) / 2) * step
                colour = colours[arm] if place == 0 else tint(colours[arm], 0.35)
                mean_point(axes, found, y, colour, VIEW_MARKERS[place % len(VIEW_MARKERS)], 5, marks)
                note = axes.annotate(
                    signed(found.mean),
                    (found.mean, y),
                    (0, 4.5),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6.5,
                )
                note.set_bbox(
                    {"fc": "white", "ec": "none", "pad": 0.3}
                )  # the zero line must not run through it
                numbers.extend(spread_numbers(found, spot, arm, view, "delta"))
                value = paper_delta(results, spot, arm, view)
                if value is not None:
                    axes.plot(value, y + 0.3 * step, **PAPER)
                    numbers.append((label(spot, arm, view, "delta", "paper"), value))
                    marks.paper = True
        name_rows(axes, arms)
        axes.margins(x=0.12)
        axes.set(
            xlabel=words(f"difference from {results.reference}, points", 44, 2),
            title=words(spot.label, 40, 2),
        )
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        for axes, spot in zip(grid(sheet, len(places), sharex=True, sharey=True), places, strict=True):
            panel(axes, spot)
        keys = [
            dot(VIEW_MARKERS[i % len(VIEW_MARKERS)], MUTED if not i else tint(MUTED, 0.35), shown(v))
            for i, v in enumerate(views)
        ]
        legend(sheet, [*keys, *marks.keys("o")])

    size = panel_size(len(places), max(2.2, 1.1 + len(arms) * (0.24 * len(views) + 0.1)))
    caption = f"Difference of every arm from {results.reference}, in percentage points."
    return finish(
        "effects", f"Effect against {results.reference}", caption, numbers, size, draw, marks, OVER_BOTH
    )


def cross_scale(results: Results) -> Figure | None:
    """Difference from the reference against the models, one panel a point of the axes; drawn for two models
    and more.
    """
    view = primary(results)
    arms = [arm for arm in arms_with_results(results) if arm != results.reference]
    places = [
        spot for spot in spots(results) if view and any(delta(results, spot, arm, view) for arm in arms)
    ]
    models = [model for model in results.models if any(spot.model == model for spot in places)]
    points = [point for point in results.points() if any(spot.point == point for spot in places)]
    if len(models) < 2 or view is None:
        return None
    colours, shapes, numbers, marks = arm_colours(results), arm_markers(results), Numbers(), Marks()

    def panel(axes: Axes, point: dict[str, Any]) -> None:
        axes.axhline(0, color=MUTED, lw=0.9)
        for place, arm in enumerate(arms):
            shift = (place - (len(arms) - 1) / 2) * min(0.16, 0.7 / len(arms))
            line = []
            for spot in (s for s in places if s.point == point):
                found, x = delta(results, spot, arm, view), models.index(spot.model) + shift
                if found is not None:
                    line.append((x, found.mean))
                    mean_point(axes, found, x, colours[arm], shapes[arm], 5, marks, upright=True)
                    numbers.extend(spread_numbers(found, spot, arm, view, "delta"))
                value = paper_delta(results, spot, arm, view)
                if found is not None and value is not None:
                    axes.plot(x + 0.05, value, **PAPER)
                    numbers.append((label(spot, arm, view, "delta", "paper"), value))
                    marks.paper = True
            axes.plot(
                *zip(*line, strict=True), color=tint(colours[arm], 0.5), lw=0.9, zorder=1
            ) if line else None
        axes.set_xticks(range(len(models)), [words(model, 14) for model in models])
        axes.set_xlim(-0.5, len(models) - 0.5)
        axes.set_title(words(", ".join(f"{k}={v}" for k, v in point.items()), 40, 2))
        axes.grid(axis="y")

    def draw(sheet: Sheet) -> None:
        panels = grid(sheet, len(points), sharey=True)
        for axes, point in zip(panels, points, strict=True):
            panel(axes, point)
        sheet.supylabel(words(f"{shown(view)}: difference from {results.reference}, points", 46), fontsize=8)
        legend(sheet, [*(dot(shapes[arm], colours[arm], arm) for arm in arms), *marks.keys("o")])

    caption = f"Difference of {shown(view)} from {results.reference} by model, in percentage points."
    size = panel_size(len(points), 3.6)
    return finish("cross-scale", "Effect across models", caption, numbers, size, draw, marks, OVER_BOTH)


def seeds(results: Results) -> Figure | None:
    """Every seed as a point, their mean and sample standard deviation; drawn where some arm has two seeds."""
    view, arms = primary(results), arms_with_results(results)
    places = spots(results)
    if view is None or not any(
        len(percents(results, results.group(s.model, arm, s.point), view)) > 1 for s in places for arm in arms
    ):
        return None
    colours, shapes, numbers, marks = arm_colours(results), arm_markers(results), Numbers(), Marks()

    def panel(axes: Axes, spot: Spot) -> None:
        for row, arm in enumerate(arms):
            cells = [cell for cell in results.group(spot.model, arm, spot.point) if cell.right.get(view)]
            values = percents(results, cells, view)
            if not values:
                continue
            where = [
                row + 0.26 * (2 * i / max(1, len(values) - 1) - 1) if len(values) > 1 else row
                for i in range(len(values))
            ]
            axes.plot(
                values,
                where,
                marker=shapes[arm],
                ls="none",
                ms=3.8,
                mfc=tint(colours[arm], 0.45),
                mec=colours[arm],
                mew=0.6,
            )
            mean, sd = mean_sd(values)
            axes.plot(
                [mean, mean], [row - 0.34, row + 0.34], color=colours[arm], lw=2.4, solid_capstyle="butt"
            )
            numbers.append((label(spot, arm, view, "mean"), mean))
            numbers.extend(
                (label(spot, arm, view, f"seed {c.seed}"), v) for c, v in zip(cells, values, strict=True)
            )
            if len(values) > 1:
                axes.errorbar(mean, row, xerr=sd, color=INK, lw=1, capsize=3)
                numbers.append((label(spot, arm, view, "sd"), sd))
            paper = paper_row(results, spot, arm)
            value = paper.accuracy(view) if paper else None
            if paper and value is not None:
                axes.errorbar(
                    value, row + 0.42, xerr=paper.sd(view), color=MUTED, elinewidth=0.8, capsize=2, fmt="none"
                )
                axes.plot(value, row + 0.42, **PAPER)
                numbers.append((label(spot, arm, view, "paper"), value))
                marks.paper = True
        name_rows(axes, arms)
        axes.margins(x=0.08)
        axes.set(xlabel=f"{shown(view)} accuracy, %", title=words(spot.label, 40, 2))
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        for axes, spot in zip(grid(sheet, len(places), sharex=True, sharey=True), places, strict=True):
            panel(axes, spot)
        tick = Line2D([], [], color=MUTED, marker="|", ms=9, mew=2.4, ls="none", label="mean over seeds")
        bar = Line2D([], [], color=INK, lw=1, label="± sample standard deviation")
        legend(sheet, [dot("o", MUTED, "one seed"), tick, bar, *marks.keys("")])

    caption = f"{shown(view)} accuracy of every seed, with mean and sample standard deviation. The axis does not begin at zero."
    size = panel_size(len(places), max(2.4, 1.2 + 0.5 * len(arms)))
    return finish("seeds", "Spread over seeds", caption, numbers, size, draw, marks, "")

"""Accuracy against the values of a setting that a study varies: training steps, the share of tokens kept,
whatever has an axis.

It leaves out the model and the arms, which are no axes and have figures of their own (figures.py).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from smopd.study.drawing import (
    Figure,
    Spot,
    arm_colours,
    arm_markers,
    grid,
    legend,
    paper_row,
    percents,
    primary,
    shown,
    spots,
    spread,
    tint,
    words,
)
from smopd.study.marks import (
    PAPER,
    VIEW_MARKERS,
    Marks,
    Numbers,
    arms_with_results,
    dot,
    finish,
    label,
    listed,
    mean_point,
    panel_size,
    spread_numbers,
)
from smopd.study.results import Results

CLOSE = 0.06  # values nearer than this share of the range would have labels on top of each other


def axis_figure(results: Results, setting: str) -> Figure | None:
    """Accuracy against the values of one axis, a line an arm; drawn where two values have results."""
    values = [v for v in results.axes[setting] if any(cell.axes.get(setting) == v for cell in results.cells)]
    arms = arms_with_results(results)
    if len(values) < 2 or not results.views:
        return None
    rests: list[tuple[Spot, list[Spot]]] = []  # a panel: what it shows besides the axis, and its spots
    for spot in spots(results):
        rest = {k: v for k, v in spot.point.items() if k != setting}
        group = next(
            (group for first, group in rests if (first.model, first.point) == (spot.model, rest)), None
        )
        if group is None:
            rests.append((Spot(spot.model, rest, ""), group := []))
        group.append(spot)
    positions, labels = positions_of(values)
    # Two arms at most share a panel with every view; with more, a panel is a view.
    views = sorted(results.views, key=lambda view: view != primary(results))
    parts = [views] if len(arms) <= 2 else [[view] for view in results.views]
    panels = [(rest, group, part) for rest, group in rests for part in parts]
    colours, shapes, numbers, marks = arm_colours(results), arm_markers(results), Numbers(), Marks()
    closest = min(b - a for a, b in pairwise(sorted(positions)))
    beside = 0.025 * (max(positions) - min(positions))  # the paper's points, from ours
    near = min(0.03 * (max(positions) - min(positions)), 0.4 * closest / len(arms))

    def line(axes: Axes, group: list[Spot], arm: str, view: str, shift: float) -> None:
        place = views.index(view) if len(parts) == 1 else 0
        colour = tint(colours[arm], 0.3 * place) if len(parts) == 1 else colours[arm]
        path = []
        for spot in group:
            own = percents(results, results.group(spot.model, arm, spot.point), view)
            found, x = spread(own), positions[values.index(spot.point[setting])] + shift
            if found is None:
                continue
            path.append((x, found.mean))
            if found.seeds > 1:
                axes.plot(
                    [x + 0.4 * near] * len(own),
                    own,
                    marker=".",
                    ms=3.5,
                    mew=0,
                    ls="none",
                    color=colour,
                    zorder=2,
                )
            marker = VIEW_MARKERS[place % len(VIEW_MARKERS)] if len(parts) == 1 else shapes[arm]
            mean_point(axes, found, x, colour, marker, 4.6, marks, upright=True)
            numbers.extend(spread_numbers(found, spot, arm, view))
            paper = paper_row(results, spot, arm)
            value = paper.accuracy(view) if paper else None
            if value is not None:
                axes.plot(x + beside, value, **PAPER)
                numbers.append((label(spot, arm, view, "paper"), value))
                marks.paper = True
        if path:
            axes.plot(
                *zip(*path, strict=True),
                color=colour,
                ls=("-", "--", ":", "-.")[place % 4],
                lw=1.2,
                zorder=1.5,
            )

    def named(arm: str, view: str) -> str:
        return f"{arm}, {shown(view)}" if len(arms) > 1 else shown(view)

    def draw(sheet: Sheet) -> None:
        several = len(rests) > 1
        for axes, (rest, group, part) in zip(grid(sheet, len(panels), sharey=True), panels, strict=True):
            for i, arm in enumerate(arms):
                for view in part:
                    line(axes, group, arm, view, (i - (len(arms) - 1) / 2) * near)
            parts_of = [rest.model, *(f"{k}={v}" for k, v in rest.point.items())] if several else []
            axes.set_title(words(", ".join(parts_of + ([shown(part[0])] if len(parts) > 1 else [])), 40, 2))
            axes.set_xticks(positions, labels)
            axes.set_xlabel(setting)
            axes.grid()
        sheet.supylabel("accuracy, %", fontsize=8)
        if len(parts) > 1 or len(results.views) == 1:
            keys = [dot(shapes[arm], colours[arm], arm) for arm in arms]
        else:
            keys = [
                dot(VIEW_MARKERS[i % len(VIEW_MARKERS)], tint(colours[arm], 0.3 * i), named(arm, view))
                for arm in arms for i, view in enumerate(views)
            ]  # fmt: skip
        legend(sheet, [*keys, *marks.keys("o")])

    name = "steps" if setting == "train.steps" else f"axis-{setting}"
    title = "Accuracy against training steps" if name == "steps" else f"Accuracy against {setting}"
    caption = f"Accuracy in {listed(results.views)} against {setting}; small dots are single seeds. The axis does not begin at zero."
    return finish(name, title, caption, numbers, panel_size(len(panels), 3.4), draw, marks)


def positions_of(values: Sequence[Any]) -> tuple[list[float], list[str]]:
    """Where the values of an axis stand and what is written there: to scale where that can be read, else
    evenly spaced.
    """
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

"""Accuracy against the values of a setting that a study varies, such as the training steps.

It leaves out the model and the arms, which are no axes and have figures of their own (figures.py).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from smopd.study.drawing import Figure, spread, tint, words
from smopd.study.plot import VIEW_MARKERS, Plot, Spot, dot, label, listed, panel_size, panels, settings
from smopd.study.results import Results

CLOSE = 0.06  # values nearer than this share of the range would have labels on top of each other


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

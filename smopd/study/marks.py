"""What several figures of a study draw: points with their intervals, bars of a view, differences, and the
words below.

It leaves out which figures there are and what each shows (figures.py, figures_axes.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from smopd.formatting import points, visible
from smopd.study.drawing import (
    INK,
    WIDE,
    WIDTH,
    Figure,
    Spot,
    Spread,
    paper_row,
    percents,
    primary,
    render,
    shown,
    tint,
)
from smopd.study.results import Results
from smopd.study.statistics import mean_sd, welch_interval

Numbers = list[tuple[str, float]]
VIEW_MARKERS = ("o", "s", "^", "v", "P", "X")
OVER_SEEDS = "Whiskers are 95% intervals of the mean over seeds (Student's t)."
OVER_BOTH = "Whiskers are 95% intervals over seeds (Welch), both arms' seeds counted."
PAPER: dict[str, Any] = {
    "marker": "D",
    "mfc": "white",
    "mec": INK,
    "mew": 0.9,
    "ms": 4.4,
    "ls": "none",
    "zorder": 4,
}


class Marks:
    """Which kinds of points a figure has come to hold, for its key and its caption."""

    def __init__(self) -> None:
        self.single = self.whisker = self.paper = False

    def keys(self, marker: str) -> list[Line2D]:
        """What the key explains besides colours and views."""
        found = (
            [Line2D([], [], marker=marker, mfc="white", mec=INK, ls="none", ms=4, label="single seed")]
            if self.single and marker
            else []
        )
        return found + ([Line2D([], [], label="paper", **PAPER)] if self.paper else [])

    def notes(self, whisker: str) -> list[str]:
        """Sentences for the caption."""
        found = [whisker] if self.whisker and whisker else []
        found += ["Hollow points are a single seed and have no interval over seeds."] if self.single else []
        return found + (["Hollow diamonds are the numbers printed in the paper."] if self.paper else [])


def finish(
    name: str, title: str, lead: str, numbers: Numbers, size: tuple[float, float], draw: Callable[[Sheet], None], marks: Marks,
    whisker: str = OVER_SEEDS,
) -> Figure:  # fmt: skip
    """Render, then say in the caption what came to be drawn."""
    figure = render(name, title, "", numbers, size, draw)
    return replace(figure, caption=visible(" ".join([lead, *marks.notes(whisker)])))


def mean_point(
    axes: Axes,
    found: Spread,
    at: float,
    colour: str,
    marker: str,
    size: float,
    marks: Marks,
    upright: bool = False,
) -> float:
    """A mean with its whisker, hollow and bare for a single seed; returns the far end of what was drawn."""
    x, y = (at, found.mean) if upright else (found.mean, at)
    end = found.mean
    if found.low is not None and found.high is not None:
        error = [[found.mean - found.low], [found.high - found.mean]]
        ink = (
            colour if upright else INK
        )  # lines of several arms may cross; a bar may have the colour of its whisker
        errors: Any = {"yerr" if upright else "xerr": error}
        axes.errorbar(x, y, **errors, fmt="none", ecolor=ink, elinewidth=0.9, capsize=2, zorder=2.5)
        end, marks.whisker = found.high, True
    else:
        marks.single = True
    axes.plot(
        x,
        y,
        marker=marker,
        ms=size,
        mfc="white" if found.seeds == 1 else colour,
        mec=colour,
        mew=1.1,
        ls="none",
        zorder=3,
    )
    return end


def signed(value: float) -> str:
    """ "+1.5", with the minus that the axes have."""
    return points(value / 100).replace("-", "\u2212")


def dot(marker: str, colour: str, label: str) -> Line2D:
    """A point for the key."""
    return Line2D([], [], marker=marker, mfc=colour, mec=colour, ls="none", ms=5, label=label)


def bar_style(colour: str, results: Results, view: str) -> dict[str, Any]:
    """The main view in the full colour, the first of the others pale, the rest hatched."""
    if view == primary(results):
        return {"facecolor": colour, "edgecolor": colour}
    others = [v for v in results.views if v != primary(results)]
    hatch = ("", "////", "\\\\\\\\", "xxxx", "----")[others.index(view) % 5]
    return {"facecolor": tint(colour, 0.62 if not hatch else 0.8), "edgecolor": colour, "hatch": hatch}


def path(spot: Spot, *parts: str) -> list[str]:
    """Where a number belongs: model, values of the axes, and what follows."""
    return [spot.model, *(f"{k}={v}" for k, v in spot.point.items()), *parts]


def label(spot: Spot, *parts: str) -> str:
    """The name of one number."""
    return "/".join(path(spot, *parts))


def spread_numbers(found: Spread, spot: Spot, *parts: str) -> Numbers:
    """A mean and the ends of its interval as named numbers."""
    named = {"mean": found.mean, "low": found.low, "high": found.high}
    return [(label(spot, *parts, name), value) for name, value in named.items() if value is not None]


def delta(results: Results, spot: Spot, arm: str, view: str) -> Spread | None:
    """Difference from the reference in points, with Welch's 95% interval over seeds where both have two and
    more.
    """
    a, b = (
        percents(results, results.group(spot.model, name, spot.point), view)
        for name in (arm, results.reference)
    )
    if not a or not b or arm == results.reference:
        return None
    difference = mean_sd(a)[0] - mean_sd(b)[0]
    if min(len(a), len(b)) < 2:
        return Spread(difference, None, None, 1)
    return Spread(difference, *welch_interval(a, b), min(len(a), len(b)))


def paper_delta(results: Results, spot: Spot, arm: str, view: str) -> float | None:
    """The paper's difference: as printed, or of the printed accuracies."""
    row, base = paper_row(results, spot, arm), paper_row(results, spot, "baseline")
    if row is None or base is None or results.reference != "baseline" or arm == "baseline":
        return None
    printed = {"sharded": row.delta, "full": row.delta_full}.get(view)
    if printed is not None:
        return printed
    value, reference = row.accuracy(view), base.accuracy(view)
    return round(value - reference, 2) if value is not None and reference is not None else None


def arms_with_results(results: Results) -> list[str]:
    """In the order of the study."""
    return [arm for arm in results.arms if any(cell.arm == arm for cell in results.cells)]


def panel_size(panels: int, height: float) -> tuple[float, float]:
    """Inches of a sheet with so many panels of this height, three in a row."""
    rows = -(-panels // 3)
    return (WIDTH if panels < 3 else WIDE, height * rows - 0.5 * (rows - 1))


def listed(views: Sequence[str]) -> str:
    """ "FULL and SHARDED"."""
    names = [shown(view) for view in views]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""One figure of a study in the making: what it shows of the results, points with intervals, and its words.

It leaves out which figures there are and what each shows (figures.py, figures_training.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D

from smopd.formatting import visible
from smopd.study.drawing import INK, WIDE, WIDTH, Figure, Spread, grid, legend, render, slug, tint
from smopd.study.paper import PaperRow, find
from smopd.study.results import Cell, Results
from smopd.study.statistics import mean_sd, welch_interval

# Colours of Okabe and Ito, then of Tol: told apart with any colour vision. The paper's arms have the same
# colour in every study.
ARM_COLOURS = {"base": "#c3cad1", "baseline": "#7d8894", "entropy": "#0072b2", "outcome": "#e69f00"}
ARM_COLOURS |= {"combined": "#009e73"}
_OTHERS = "#cc79a7 #d55e00 #56b4e9 #332288 #999933 #882255 #44aa99 #aa4499 #8c6d31 #117733"
OTHER_COLOURS = tuple(_OTHERS.split())
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "<", ">", "h")
VIEW_MARKERS = MARKERS[:6]
OVER_SEEDS = "Whiskers are 95% intervals of the mean over seeds (Student's t)."
OVER_BOTH = "Whiskers are 95% intervals over seeds (Welch), both arms' seeds counted."
PAPER: dict[str, Any] = {
    "marker": "D",
    "mfc": "white",
    "mec": INK,
    "mew": 0.9,
    "ms": 4.4,
    "ls": "",
    "zorder": 4,
}


class Spot(NamedTuple):
    """One model at one point of the axes: what a panel shows."""

    model: str
    point: dict[str, Any]
    label: str  # empty where there is only one


class Plot:
    """A study and what a figure of it has come to hold: its numbers, and which kinds of points."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.numbers: list[tuple[str, float]] = []
        self.single = self.whisker = self.paper = False
        others = [arm for arm in results.arms if arm not in ARM_COLOURS]
        self.colours = ARM_COLOURS | dict(zip(others, OTHER_COLOURS * len(others), strict=False))
        # For readers and printers without colour.
        self.shapes = dict(zip(results.arms, MARKERS * len(results.arms), strict=False))
        self.views = sorted(results.views, key=lambda view: view != "sharded")  # the one that counts first
        self.arms = [arm for arm in results.arms if any(cell.arm == arm for cell in results.cells)]
        self.treatments = [arm for arm in self.arms if arm != results.reference]
        self.spots = _spots(results)

    def cells(self, spot: Spot, arm: str) -> list[Cell]:
        """The runs of an arm at a spot, in order of the seed."""
        return self.results.group(spot.model, arm, spot.point)

    def percents(self, cells: Sequence[Cell], view: str) -> list[float]:
        """Accuracies in percent, a value a seed; cells that did not play the view are left out."""
        return [100 * cell.accuracy(view, self.results.runs) for cell in cells if cell.right.get(view)]

    def delta(self, spot: Spot, arm: str, view: str) -> Spread | None:
        """Difference from the reference in points, with Welch's interval where both have two seeds."""
        a, b = (self.percents(self.cells(spot, name), view) for name in (arm, self.results.reference))
        if not a or not b or arm == self.results.reference:
            return None
        difference, seeds = mean_sd(a)[0] - mean_sd(b)[0], min(len(a), len(b))
        low, high = welch_interval(a, b) if seeds > 1 else (None, None)
        return Spread(difference, low, high, seeds)

    def printed(self, spot: Spot, arm: str) -> PaperRow | None:
        """The paper's row of the same configuration: of the axes, only the steps may differ."""
        if not self.results.paper or set(spot.point) - {"train.steps"}:
            return None
        return find(self.results.paper, spot.model, arm, spot.point.get("train.steps"))

    def printed_accuracy(self, spot: Spot, arm: str, view: str) -> float | None:
        """The paper's accuracy of the same configuration."""
        row = self.printed(spot, arm)
        return row.accuracy(view) if row else None

    def printed_delta(self, spot: Spot, arm: str, view: str) -> float | None:
        """The paper's difference: as printed, or of the printed accuracies."""
        row, base = self.printed(spot, arm), self.printed(spot, "baseline")
        if row is None or base is None or self.results.reference != "baseline" or arm == "baseline":
            return None
        printed = {"sharded": row.delta, "full": row.delta_full}.get(view)
        value, reference = row.accuracy(view), base.accuracy(view)
        if printed is not None or value is None or reference is None:
            return printed
        return round(value - reference, 2)

    def add(self, name: str, found: Spread) -> None:
        """Note a mean and the ends of its interval."""
        ends = {"mean": found.mean, "low": found.low, "high": found.high}
        self.numbers.extend((f"{name}/{end}", value) for end, value in ends.items() if value is not None)

    def mean_point(
        self, axes: Axes, name: str, found: Spread, at: float, colour: str, marker: str, size: float,
        upright: bool = False,
    ) -> float:  # fmt: skip
        """Draw a mean with its whisker, hollow and bare for a single seed; returns the far end of it."""
        x, y = (at, found.mean) if upright else (found.mean, at)
        end = found.mean
        if found.low is not None and found.high is not None:
            # Lines of several arms may cross; a bar may have the colour of its whisker.
            ink, error = colour if upright else INK, [[found.mean - found.low], [found.high - found.mean]]
            errors: Any = {"yerr" if upright else "xerr": error}
            axes.errorbar(x, y, **errors, fmt="none", ecolor=ink, elinewidth=0.9, capsize=2, zorder=2.5)
            end, self.whisker = found.high, True
        else:
            self.single = True
        fill = "white" if found.seeds == 1 else colour
        axes.plot(x, y, marker=marker, ms=size, mfc=fill, mec=colour, mew=1.1, ls="none", zorder=3)
        self.add(name, found)
        return end

    def paper_point(self, axes: Axes, name: str, value: float, x: float, y: float) -> None:
        """Draw a number of the paper."""
        axes.plot(x, y, **PAPER)
        self.numbers.append((f"{name}/paper", value))
        self.paper = True

    def bar_style(self, colour: str, view: str) -> dict[str, Any]:
        """The main view in the full colour, the first of the others pale, the rest hatched."""
        place = self.views.index(view)
        if not place:
            return {"facecolor": colour, "edgecolor": colour}
        hatch = ("", "////", "\\\\\\\\", "xxxx", "----")[(place - 1) % 5]
        return {"facecolor": tint(colour, 0.8 if hatch else 0.62), "edgecolor": colour, "hatch": hatch}

    def key(self, sheet: Sheet, handles: Sequence[Any], marker: str = "o", columns: int = 4) -> None:
        """The key of the whole sheet: these, and the kinds of points that need an explanation."""
        more = []
        if self.single and marker:
            look: dict[str, Any] = {"mfc": "white", "mec": INK, "ls": "none", "ms": 4}
            more.append(Line2D([], [], marker=marker, label="single seed", **look))
        more += [Line2D([], [], label="paper", **PAPER)] if self.paper else []
        legend(sheet, [*handles, *more], columns)

    def finish(
        self, name: str, title: str, lead: str, size: tuple[float, float], draw: Callable[[Sheet], None],
        whisker: str = OVER_SEEDS,
    ) -> Figure:  # fmt: skip
        """Render, then say in the caption what came to be drawn."""
        figure = render(name, title, self.numbers, size, draw)
        single = "Hollow points are a single seed and have no interval over seeds."
        paper = "Hollow diamonds are the numbers printed in the paper."
        drawn = ((whisker, self.whisker), (single, self.single), (paper, self.paper))
        notes = [lead, *(note for note, there in drawn if there and note)]
        return replace(figure, caption=visible(" ".join(notes)))


def panels(sheet: Sheet, shown: Sequence[Any], panel: Callable[[Axes, Any], None], **shared: Any) -> None:
    """A panel for each."""
    for axes, one in zip(grid(sheet, len(shown), **shared), shown, strict=True):
        panel(axes, one)


def panel_size(panels: int, height: float) -> tuple[float, float]:
    """Inches of a sheet with so many panels of this height, three in a row."""
    rows = -(-panels // 3)
    return (WIDTH if panels < 3 else WIDE, height * rows - 0.5 * (rows - 1))


def dot(marker: str, colour: str, label: str) -> Line2D:
    """A point for the key."""
    return Line2D([], [], marker=marker, mfc=colour, mec=colour, ls="none", ms=5, label=label)


def label(spot: Spot, *parts: str) -> str:
    """The name of a number: model, values of the axes, and what follows."""
    return "/".join([spot.model, *settings(spot.point), *parts])


def settings(point: dict[str, Any]) -> list[str]:
    """{"train.steps": 40} -> ["train.steps=40"]."""
    return [f"{name}={value}" for name, value in point.items()]


def of_spot(base: str, spot: Spot) -> str:
    """The name of a figure that there is one of for every spot."""
    return f"{base}-{slug(spot.label)}" if slug(spot.label) else base


def listed(views: Sequence[str]) -> str:
    """ "FULL and SHARDED"."""
    names = [view.upper() for view in views]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _spots(results: Results) -> list[Spot]:
    """Every model and point of the axes that has a result, labelled by what differs among them."""
    pairs = [(model, point) for model in results.models for point in results.points()]
    pairs = [(m, p) for m, p in pairs if any(c.model == m and c.axes == p for c in results.cells)]
    several = len({model for model, _ in pairs}) > 1
    found = []
    for model, point in pairs:
        varied = {k: v for k, v in point.items() if any(other.get(k) != v for _, other in pairs)}
        found.append(Spot(model, point, ", ".join(([model] if several else []) + settings(varied))))
    return found

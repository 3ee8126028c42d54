"""What the figures of a study share: style, points with intervals over seeds, texts and files.

A figure is an SVG and a PDF, byte-identical for the same input and the same matplotlib. Text in the SVG is
drawn as outlines, so a page needs no font.
"""

import io
import textwrap
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from math import sqrt
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from scipy.special import stdtrit

from smopd.formatting import finite, visible
from smopd.methods import PAPERS_OWN
from smopd.study.paper import PaperRow, find
from smopd.study.results import Cell, Results
from smopd.study.statistics import mean_sd, welch_interval
from smopd.svg import styled, svg_text

INK, MUTED = "#1f2328", "#59636e"
WIDTH, WIDE = 6.5, 8.2  # inches; WIDE with three panels side by side
# Okabe-Ito and Tol colours, safe for colour blindness. The paper's arms look the same in every study.
_PAPERS_COLOURS = ("#7d8894", "#0072b2", "#e69f00", "#009e73")
ARM_COLOURS = {"base": "#c3cad1", **dict(zip(PAPERS_OWN, _PAPERS_COLOURS, strict=True))}
_OTHERS = "#cc79a7 #d55e00 #56b4e9 #332288 #999933 #882255 #44aa99 #aa4499 #8c6d31 #117733"
OTHER_COLOURS = tuple(_OTHERS.split())
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "<", ">", "h")
FIGURES: dict[str, Any] = tomllib.loads(files("smopd.study").joinpath("figures.toml").read_text("utf-8"))
PAPER: dict[str, Any] = {
    "marker": "D", "mfc": "white", "mec": INK, "mew": 0.9, "ms": 4.4, "ls": "", "zorder": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A drawing with its texts and its numbers, which can then be recomputed and compared."""

    name: str
    title: str
    caption: str
    svg: str
    pdf: bytes
    numbers: list[tuple[str, float]]


class Spread(NamedTuple):
    """A mean over seeds and its 95% interval, which a single seed or equal seeds do not have."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


class GridPoint(NamedTuple):
    model: str
    point: dict[str, Any]
    label: str  # empty if there is only one

    def number(self, *parts: str) -> str:
        """The name of a number: model, values of the axes, `parts`."""
        return "/".join([self.model, *settings(self.point), *parts])


class Plot:
    def __init__(self, results: Results) -> None:
        self.results = results
        self.numbers: list[tuple[str, float]] = []
        self.points = set[str]()  # kinds of points that were drawn, see figures.toml
        others = [arm for arm in results.arms if arm not in ARM_COLOURS]
        self.colours = ARM_COLOURS | dict(zip(others, OTHER_COLOURS * len(others), strict=False))
        # For readers and printers without colour.
        self.shapes = dict(zip(results.arms, MARKERS * len(results.arms), strict=False))
        self.views = sorted(results.views, key=lambda view: view != "sharded")  # main view first
        self.arms = [arm for arm in results.arms if any(cell.arm == arm for cell in results.cells)]
        self.treatments = [arm for arm in self.arms if arm != results.reference]
        # Every model and point of the axes with a result, labelled by what differs among them.
        played = [(cell.model, cell.axes) for cell in results.cells]
        pairs = [pair for pair in product(results.models, results.points()) if pair in played]
        several = len({model for model, _ in pairs}) > 1
        self.spots = []
        for model, point in pairs:
            varied = {k: v for k, v in point.items() if any(other.get(k) != v for _, other in pairs)}
            self.spots.append(GridPoint(model, point, ", ".join([model] * several + settings(varied))))

    def cells(self, spot: GridPoint, arm: str) -> list[Cell]:
        return self.results.group(spot.model, arm, spot.point)

    def percents(self, cells: Sequence[Cell], view: str) -> list[float]:
        """Accuracies in percent, one per seed, of the cells that played the view."""
        return [100 * self.results.accuracy(cell, view) for cell in cells if cell.right.get(view)]

    def delta(self, spot: GridPoint, arm: str, view: str) -> Spread | None:
        """Difference from the reference in points, with Welch's interval if both have two seeds."""
        a, b = (self.percents(self.cells(spot, name), view) for name in (arm, self.results.reference))
        if not a or not b or arm == self.results.reference:
            return None
        low, high = map(finite, welch_interval(a, b))
        return Spread(mean_sd(a)[0] - mean_sd(b)[0], low, high, min(len(a), len(b)))

    def printed(self, spot: GridPoint, arm: str) -> PaperRow | None:
        """The paper's row of this configuration; of the axes, only train.steps may differ."""
        if not self.results.paper or set(spot.point) - {"train.steps"}:
            return None
        return find(self.results.paper, spot.model, arm, spot.point.get("train.steps"))

    def add(self, name: str, estimate: Spread) -> None:
        ends = zip(("mean", "low", "high"), estimate, strict=False)
        self.numbers.extend((f"{name}/{end}", value) for end, value in ends if value is not None)

    def mean_point(
        self, axes: Axes, name: str, estimate: Spread, at: float, colour: str, marker: str, size: float = 5,
        upright: bool = False,
    ) -> float:  # fmt: skip
        """Draw a mean with its whisker, if any, hollow for a single seed; returns the upper end."""
        mean, low, high, seeds = estimate
        x, y = (at, mean) if upright else (mean, at)
        self.points.add("whisker" if low is not None else "single" if seeds == 1 else "agreeing")
        if low is not None and high is not None:
            # Upright whiskers of several arms may overlap; on a bar, its own colour would not be visible.
            ink, error = colour if upright else INK, [[mean - low], [high - mean]]
            errors: Any = {"yerr" if upright else "xerr": error}
            axes.errorbar(x, y, **errors, fmt="none", ecolor=ink, elinewidth=0.9, capsize=2, zorder=2.5)
        fill = "white" if seeds == 1 else colour
        axes.plot(x, y, marker=marker, ms=size, mfc=fill, mec=colour, mew=1.1, ls="none", zorder=3)
        self.add(name, estimate)
        return mean if high is None else high

    def paper_point(
        self, axes: Axes, spot: GridPoint, arm: str, view: str, at: float, upright: bool = False,
        delta: bool = False,
    ) -> float | None:  # fmt: skip
        """Draw and return the paper's accuracy or difference from the baseline, if it prints one."""
        row, reference, value = self.printed(spot, arm), self.results.reference, None
        if row and (not delta or reference == PAPERS_OWN[0]):
            value = row.effect(view, reference) if delta else row.accuracy(view)
        if value is not None:
            axes.plot(*((at, value) if upright else (value, at)), **PAPER)
            self.numbers.append((spot.number(arm, view, *["delta"] * delta, "paper"), value))
            self.points.add("paper")
        return value

    def bar_style(self, colour: str, view: str) -> dict[str, Any]:
        """The main view in the full colour, the first of the others pale, the rest hatched."""
        place = self.views.index(view)
        if not place:
            return {"facecolor": colour, "edgecolor": colour}
        hatch = ("", "////", "\\\\\\\\", "xxxx", "----")[(place - 1) % 5]
        return {"facecolor": tint(colour, 0.8 if hatch else 0.62), "edgecolor": colour, "hatch": hatch}

    def figure(
        self, kind: str, texts: dict[str, str], shown: Sequence[Any], panel: Callable[[Axes, Any], None],
        size: float | tuple[float, float], handles: Sequence[Any], *, name: str = "",
        whisker: str = "over_seeds", ylabel: str = "", columns: int = 3, in_key: int = 4, **shared: Any,
    ) -> Figure:  # fmt: skip
        """Draw figure `kind` of figures.toml with `texts` filled in, one panel per item of `shown`. `size`:
        of the sheet in inches, or the height of a row of three panels; `in_key`: columns of the legend.
        """
        title, lead = (FIGURES[kind][part].format(**texts) for part in ("title", "caption"))
        if not isinstance(size, tuple):
            rows = -(-len(shown) // 3)
            size = (WIDTH if len(shown) < 3 else WIDE, size * rows - 0.5 * (rows - 1))
        heading, pdf = visible(title), io.BytesIO()
        with styled(FIGURES["style"]):
            sheet = Sheet(figsize=size, layout="constrained")
            for axes, one in zip(grid(sheet, len(shown), columns, **shared), shown, strict=True):
                panel(axes, one)
            if ylabel:
                sheet.supylabel(ylabel, fontsize=8)
            # One legend above the panels, which explains hollow points too.
            single = Line2D([], [], marker="o", label="single seed", mfc="white", mec=INK, ls="none", ms=4)
            keys = [*handles, *[single] * (whisker != "" and "single" in self.points)]
            keys += [Line2D([], [], label="paper", **PAPER)] * ("paper" in self.points)
            if keys:
                labels, in_key = [words(key.get_label(), 30, 2) for key in keys], min(in_key, len(keys))
                looks: dict[str, Any] = {"ncols": in_key, "handlelength": 1.6, "columnspacing": 1.4}
                sheet.legend(keys, labels, loc="outside upper center", **looks)
            svg = svg_text(sheet, heading)
            sheet.set_layout_engine("none")  # the layout is already done
            metadata = {"Title": heading, "CreationDate": None, "Creator": None}
            FigureCanvasPdf(sheet).print_pdf(pdf, metadata=metadata)
        drawn = {whisker if point == "whisker" else point for point in self.points}
        notes = (text for point, text in FIGURES["points"].items() if point in drawn)
        caption = visible(" ".join([lead, *notes]))
        return Figure(name or kind, heading, caption, svg, pdf.getvalue(), self.numbers)


@cache
def schematic() -> Figure:
    folder = files("smopd.study").joinpath("schematic")
    svg, text = (folder.joinpath(name).read_text("utf-8") for name in ("schematic.svg", "caption.txt"))
    pdf = folder.joinpath("schematic.pdf").read_bytes()
    return Figure("schematic", "One training step", " ".join(text.split()), svg, pdf, [])


def tint(colour: str, share: float) -> str:
    """Mix a colour with this share of white."""
    mixed: Any = [c + (1 - c) * share for c in to_rgb(colour)]
    return to_hex(mixed)


def words(text: object, width: int = 22, lines: int = 3) -> str:
    """Wrap a name of any length into a few short lines."""
    return "\n".join(textwrap.wrap(visible(str(text)), width, max_lines=lines, placeholder="…"))


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and Student's t 95% interval over seeds; None without values."""
    if not values:
        return None
    (mean, sd), n = mean_sd(values), len(values)
    half = float(stdtrit(n - 1, 0.975)) * sd / sqrt(n) if n > 1 and sd else None
    return Spread(mean, None, None, n) if half is None else Spread(mean, mean - half, mean + half, n)


def grid(sheet: Sheet, panels: int, columns: int, **shared: Any) -> list[Axes]:
    columns = min(columns, panels)
    axes = list(sheet.subplots(-(-panels // columns), columns, squeeze=False, **shared).flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    # A panel above an empty place is the lowest of its column and keeps its tick labels.
    for axis in axes[max(0, panels - columns) : panels]:
        axis.tick_params(labelbottom=True)
    return axes[:panels]


def name_rows(axes: Axes, names: Sequence[str], xlabel: str, title: str) -> None:
    axes.set_yticks([float(i) for i in range(len(names))], [words(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set(xlabel=xlabel, title=title)
    axes.grid(axis="x")


def dot(marker: str, colour: str, label: str) -> Line2D:
    return Line2D([], [], marker=marker, mfc=colour, mec=colour, ls="none", ms=5, label=label)


def settings(point: dict[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in point.items()]


def note(axes: Axes, text: str, at: tuple[float, float], beside: tuple[float, float], **look: Any) -> Any:
    """Add small text, offset by `beside` in points."""
    return axes.annotate(text, at, xytext=beside, textcoords="offset points", **{"fontsize": 7} | look)

"""What every figure of a study shares: its form, the colours of arms, intervals over seeds, and writing it
out.

A figure is an SVG and a PDF that come out byte for byte the same for the same input and the same matplotlib.
Text in the SVG is drawn as outlines: a page then needs no font, and labels take the room they were laid out
for. It leaves out what is drawn (figures.py, figures_axes.py, figures_training.py).
"""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import sqrt
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure as Sheet
from scipy.special import stdtrit

from smopd.charts import styled, svg_text
from smopd.formatting import visible
from smopd.study.paper import PaperRow, find
from smopd.study.results import Cell, Results
from smopd.study.statistics import mean_sd

INK, MUTED, RULE = "#1f2328", "#59636e", "#d9dee3"
WIDTH = 6.5  # inches; with three panels side by side a figure is WIDE
WIDE = 8.2
# Colours of Okabe and Ito, then of Tol: told apart with any colour vision. The paper's arms have the same
# colour in every study.
ARM_COLOURS = {
    "base": "#c3cad1",
    "baseline": "#7d8894",
    "entropy": "#0072b2",
    "outcome": "#e69f00",
    "combined": "#009e73",
}
OTHER_COLOURS = (
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#332288",
    "#999933",
    "#882255",
    "#44aa99",
    "#aa4499",
    "#8c6d31",
    "#117733",
)
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "<", ">", "h")
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "smopd", "svg.fonttype": "path", "pdf.fonttype": 42, "text.parse_math": False,
    "font.family": ["DejaVu Sans"], "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8,
    "xtick.labelsize": 7.5, "ytick.labelsize": 8, "legend.fontsize": 7.5, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": RULE, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "legend.frameon": False, "lines.linewidth": 1.4, "hatch.linewidth": 0.6,
    "figure.facecolor": "white", "axes.facecolor": "white",
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A drawing with its words and what is drawn, so that the numbers can be computed again and compared."""

    name: str
    title: str
    caption: str
    svg: str
    pdf: bytes
    numbers: list[tuple[str, float]]


class Spread(NamedTuple):
    """A mean over seeds and its 95% interval; no interval for a single seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int


class Spot(NamedTuple):
    """One model at one point of the axes: what a panel shows."""

    model: str
    point: dict[str, Any]
    label: str  # empty where there is only one


def render(
    name: str, title: str, caption: str, numbers: list[tuple[str, float]], size: tuple[float, float],
    draw: Callable[[Sheet], None],
) -> Figure:  # fmt: skip
    """Have `draw` fill a sheet of that size in inches, arrange it and write it out."""
    heading, pdf = visible(title), io.BytesIO()
    with styled(_STYLE):
        sheet = Sheet(figsize=size, layout="constrained")
        draw(sheet)
        svg = svg_text(sheet, heading)
        sheet.set_layout_engine("none")  # it is laid out already
        nothing = {"CreationDate": None, "Creator": None}
        FigureCanvasPdf(sheet).print_pdf(pdf, metadata={"Title": heading} | nothing)
    return Figure(name, heading, visible(caption), svg, pdf.getvalue(), numbers)


@cache
def schematic() -> Figure:
    """The method in one drawing, the same in every report; it shows no number of a study."""
    folder = files("smopd.study").joinpath("schematic")
    svg, pdf = (
        folder.joinpath("schematic.svg").read_text("utf-8"),
        folder.joinpath("schematic.pdf").read_bytes(),
    )
    caption = " ".join(folder.joinpath("caption.txt").read_text("utf-8").split())
    return Figure("schematic", "One training step", caption, svg, pdf, [])


def arm_colours(results: Results) -> dict[str, str]:
    """Arm -> colour, the same in every figure of a study."""
    others = [arm for arm in results.arms if arm not in ARM_COLOURS]
    return ARM_COLOURS | {arm: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, arm in enumerate(others)}


def arm_markers(results: Results) -> dict[str, str]:
    """Arm -> shape of its points, for readers and printers without colour."""
    return {arm: MARKERS[i % len(MARKERS)] for i, arm in enumerate(results.arms)}


def tint(colour: str, share: float) -> str:
    """A colour mixed with so much white."""
    red, green, blue = (c + (1 - c) * share for c in to_rgb(colour))
    return to_hex((red, green, blue))


def words(text: object, width: int = 22, lines: int = 3) -> str:
    """A name of any length as a few short lines."""
    parts = textwrap.wrap(visible(str(text)), width) or [""]
    return "\n".join(
        parts if len(parts) <= lines else [*parts[: lines - 1], parts[lines - 1][: width - 1] + "…"]
    )


def primary(results: Results) -> str | None:
    """The view that counts: SHARDED, or the first one where a study does not have it."""
    return "sharded" if "sharded" in results.views else results.views[0] if results.views else None


def shown(view: str) -> str:
    """The name of a view on a page."""
    return view.upper()


def percents(results: Results, cells: Sequence[Cell], view: str) -> list[float]:
    """Accuracies in percent, a value a seed; cells that did not play the view are left out."""
    return [100 * cell.accuracy(view, results.runs) for cell in cells if cell.right.get(view)]


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and the 95% interval of Student's t over seeds; None where there is nothing."""
    if not values:
        return None
    mean, sd = mean_sd(values)
    if len(values) < 2:
        return Spread(mean, None, None, 1)
    half = float(stdtrit(len(values) - 1, 0.975)) * sd / sqrt(len(values))
    return Spread(mean, mean - half, mean + half, len(values))


def spots(results: Results) -> list[Spot]:
    """Every model and point of the axes that has a result, with a label where there are several."""
    found = [(model, point) for model in results.models for point in results.points()]
    found = [(m, p) for m, p in found if any(c.model == m and c.axes == p for c in results.cells)]
    several = len({m for m, _ in found}) > 1
    return [
        Spot(m, p, ", ".join(([m] if several else []) + _differing(p, [q for _, q in found])))
        for m, p in found
    ]


def _differing(point: dict[str, Any], points: list[dict[str, Any]]) -> list[str]:
    """The settings of a point in which the points differ."""
    return [
        f"{name}={value}"
        for name, value in point.items()
        if any(other.get(name) != value for other in points)
    ]


def slug(text: str) -> str:
    """A label as a part of a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


def of_spot(base: str, spot: Spot) -> str:
    """The name of a figure that there is one of for every spot."""
    return f"{base}-{slug(spot.label)}" if slug(spot.label) else base


def paper_row(results: Results, spot: Spot, arm: str) -> PaperRow | None:
    """The paper's row for the same configuration; none where an axis other than the steps makes it another."""
    if not results.paper or set(spot.point) - {"train.steps"}:
        return None
    return find(results.paper, spot.model, arm, spot.point.get("train.steps"))


def grid(sheet: Sheet, panels: int, columns: int = 3, **shared: Any) -> list[Axes]:
    """So many panels, in rows of up to `columns`."""
    columns = min(columns, panels)
    rows = -(-panels // columns)
    axes = list(sheet.subplots(rows, columns, squeeze=False, **shared).flat)
    for spare in axes[panels:]:
        spare.set_visible(False)
    # A panel above an empty place is the lowest of its column and keeps its tick labels.
    for axis in axes[max(0, panels - columns) : panels]:
        axis.tick_params(labelbottom=True)
    return axes[:panels]


def name_rows(axes: Axes, names: Sequence[str], height: float = 1.0) -> None:
    """Names down the left side, the first at the top."""
    axes.set_yticks([i * height for i in range(len(names))], [words(name) for name in names])
    axes.set_ylim((len(names) - 0.5) * height, -0.5 * height)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def legend(sheet: Sheet, handles: Sequence[Any], columns: int = 4) -> None:
    """One key for the whole sheet, above the panels."""
    if handles:
        labels = [words(handle.get_label(), 30, 2) for handle in handles]
        sheet.legend(
            handles,
            labels,
            loc="outside upper center",
            ncols=min(columns, len(handles)),
            handlelength=1.6,
            columnspacing=1.4,
        )

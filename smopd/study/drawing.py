"""What every figure of a study shares: its form, intervals over seeds, and writing it out.

A figure is an SVG and a PDF that come out byte for byte the same for the same input and the same matplotlib.
Text in the SVG is drawn as outlines: a page then needs no font, and labels take the room they were laid out
for. It leaves out what is drawn (figures.py, figures_training.py).
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
from smopd.study.statistics import mean_sd

INK, MUTED, RULE = "#1f2328", "#59636e", "#d9dee3"
WIDTH = 6.5  # inches; with three panels side by side a figure is WIDE
WIDE = 8.2
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "smopd", "svg.fonttype": "path", "pdf.fonttype": 42, "text.parse_math": False,
    "font.family": ["DejaVu Sans"], "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8,
    "xtick.labelsize": 7.5, "ytick.labelsize": 8, "legend.fontsize": 7.5, "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED,
    "xtick.labelcolor": INK,
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


def render(
    name: str, title: str, numbers: list[tuple[str, float]], size: tuple[float, float],
    draw: Callable[[Sheet], None],
) -> Figure:  # fmt: skip
    """Have `draw` fill a sheet of that size in inches, and write it out, as yet without a caption."""
    heading, pdf = visible(title), io.BytesIO()
    with styled(_STYLE):
        sheet = Sheet(figsize=size, layout="constrained")
        draw(sheet)
        svg = svg_text(sheet, heading)
        sheet.set_layout_engine("none")  # it is laid out already
        nothing = {"CreationDate": None, "Creator": None}
        FigureCanvasPdf(sheet).print_pdf(pdf, metadata={"Title": heading} | nothing)
    return Figure(name, heading, "", svg, pdf.getvalue(), numbers)


@cache
def schematic() -> Figure:
    """The method in one drawing, the same in every report; it shows no number of a study."""
    folder = files("smopd.study").joinpath("schematic")
    svg = folder.joinpath("schematic.svg").read_text("utf-8")
    pdf = folder.joinpath("schematic.pdf").read_bytes()
    caption = " ".join(folder.joinpath("caption.txt").read_text("utf-8").split())
    return Figure("schematic", "One training step", caption, svg, pdf, [])


def tint(colour: str, share: float) -> str:
    """A colour mixed with so much white."""
    red, green, blue = (c + (1 - c) * share for c in to_rgb(colour))
    return to_hex((red, green, blue))


def words(text: object, width: int = 22, lines: int = 3) -> str:
    """A name of any length as a few short lines."""
    parts = textwrap.wrap(visible(str(text)), width) or [""]
    if len(parts) > lines:
        parts = [*parts[: lines - 1], parts[lines - 1][: width - 1] + "…"]
    return "\n".join(parts)


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and the 95% interval of Student's t over seeds; None where there is nothing."""
    if not values:
        return None
    mean, sd = mean_sd(values)
    if len(values) < 2:
        return Spread(mean, None, None, 1)
    half = float(stdtrit(len(values) - 1, 0.975)) * sd / sqrt(len(values))
    return Spread(mean, mean - half, mean + half, len(values))


def slug(text: str) -> str:
    """A label as a part of a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")


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
        labels, columns = [words(handle.get_label(), 30, 2) for handle in handles], min(columns, len(handles))
        looks: dict[str, Any] = {"handlelength": 1.6, "columnspacing": 1.4}
        sheet.legend(handles, labels, loc="outside upper center", ncols=columns, **looks)

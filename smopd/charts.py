"""Charts as SVG, drawn with matplotlib. The same input gives the same bytes. Colours are variables of
page.css, so one drawing serves light, dark and print; there are no ids, so many charts fit on one page.
"""

import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from smopd.formatting import esc, finite, visible
from smopd.pages import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

    Draw = Callable[[Axes], None]

Points = Sequence[tuple[float, float | None]]  # in the order of x, y None at a gap
FEW = 10  # fewer points than this are not smoothed
# Lines differ by dashes too, for readers and printers without colour: lengths of ink and gap.
DASHES = ((), (6, 3.5), (1, 3.5), (8, 3.5, 1, 3.5), (3, 3), (12, 4))
SERIES = tuple(f"--c{i}" for i in range(len(DASHES)))
_NAMES = ("--ink", "--muted", "--rule", "--quiet", "--paper", *SERIES)
# What stands in a drawing for a colour of the page.
_STAND_INS = {name: f"#{i:06x}" for i, name in enumerate(_NAMES, 0xABC000)}
_MUTED = _STAND_INS["--muted"]
_LOOK: dict[str, Any] = {
    "svg.hashsalt": "smopd", "svg.fonttype": "none", "text.parse_math": False, "font.family": ["DejaVu Sans"],
    "font.size": 11, "figure.dpi": 72, "text.color": _MUTED, "xtick.color": _MUTED, "ytick.color": _MUTED,
    "axes.labelcolor": _MUTED, "axes.edgecolor": _MUTED, "grid.color": _STAND_INS["--rule"],
    "grid.linewidth": 1, "axes.axisbelow": True, "path.simplify_threshold": 0.2,
}  # fmt: skip
CHART_CSS = """svg.chart { display: block; width: 100%; height: auto; overflow: visible; }
svg.swatch { width: 24px; height: 6px; vertical-align: .2em; margin-right: .35em; }
"""
_LOCK = threading.RLock()  # matplotlib reads its settings from one place for the whole process


@dataclass(frozen=True)
class Bar:
    """One of `bar_chart`, from 0 to 1; neighbours of one `group` stand together, `note` is a second label."""

    group: str
    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    note: str = ""


@contextmanager
def styled(look: Mapping[str, Any]) -> Iterator[None]:
    """matplotlib with these settings and else its defaults, for one thread at a time."""
    import matplotlib

    # The backend is not a matter of looks.
    apart = ("backend", "interactive", "toolbar", "webagg")
    every: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    settings = {name: value for name, value in every.items() if not name.startswith(apart)}
    with _LOCK, matplotlib.rc_context(settings | dict(look)):
        yield


def svg_text(sheet: "Sheet", title: str) -> str:
    """A drawn sheet as SVG, without addresses on the web and without ids that nothing refers to."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # Straight to the writer: savefig would draw everything once more.
    buffer, nothing = io.BytesIO(), {"Date": None, "Creator": None, "Format": None, "Type": None}
    FigureCanvasSVG(sheet).print_svg(buffer, metadata={"Title": title} | nothing)
    svg = buffer.getvalue().decode()
    svg = re.sub(r"<!DOCTYPE[^>]*>\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    return re.sub(r' id="([^"]*)"', lambda m: m.group() if m.group(1) in used else "", svg)


def _chart(title: str, width: float, height: float, draw: "Draw", natural: bool = False) -> str:
    """Have `draw` place and fill the axes of a chart; `natural`: not wider on the page than it is here."""
    from matplotlib.figure import Figure as Sheet

    with styled(_LOOK), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a glyph that this font lacks, the page's may have
        sheet = Sheet(figsize=(width / 72, height / 72), frameon=False)
        axes = sheet.add_axes((0, 0, 1, 1))
        axes.patch.set_visible(False)
        axes.spines[["top", "left", "right"]].set_visible(False)
        axes.tick_params(length=0)  # a tick mark would be a reference to an id
        axes.grid(axis="y", clip_on=False)
        draw(axes)
        inner = svg_text(sheet, "chart").partition("</title>")[2]
    inner = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->|\s*\n\s*", "", inner, flags=re.S)
    # Two decimals of a coordinate are enough.
    inner = re.sub(r' (d|x|y|transform)="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), inner)
    for name, colour in _STAND_INS.items():
        inner = inner.replace(f": {colour}", f": var({name})")
    inner = inner.replace("font-family: 'DejaVu Sans'", "font-family: system-ui, sans-serif")
    style = f' style="width: {width:g}px; max-width: 100%"' if natural else ""
    head = f'<svg class="chart" role="img" viewBox="0 0 {width:g} {height:g}"{style}>'
    return f"{head}<title>{esc(title)}</title>{inner}"


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Bars on a fixed 0..100% axis with error bars and labels; a bar without a value is only labelled."""
    top, plot, left, between, bottom = 26.0, 180.0, 40.0, 26.0, 60.0
    words = [text for bar in bars for text in (bar.label, bar.note, bar.text)]
    slot = max([68.0, *(7.0 * len(text) + 8 for text in words)])
    starts = [i for i, bar in enumerate(bars) if not i or bar.group != bars[i - 1].group]
    gaps = [sum(start <= i for start in starts) - 0.5 for i in range(len(bars))]
    places = [left + between * gap + slot * (i + 0.5) for i, gap in enumerate(gaps)]
    right = left + between * max(1, len(starts)) + slot * len(bars)
    width, height = right + 4, top + plot + bottom
    # The first label is what the others are held against: a quiet grey.
    labels = list(dict.fromkeys(bar.label for bar in bars))
    others = [SERIES[i % len(SERIES)] for i in range(len(labels))]
    colour_of = dict(zip(labels, ["--quiet", *others], strict=False))

    def write(axes: "Axes", text: str, x: float, y: float, above: float, **look: Any) -> None:
        axes.annotate(visible(text), (x, y), (0, above), textcoords="offset points", ha="center", **look)

    def draw(axes: "Axes") -> None:
        axes.set_position((left / width, bottom / height, (right - left) / width, plot / height))
        axes.set(xlim=(left, right), ylim=(0, 1))
        axes.set_yticks((0, 0.25, 0.5, 0.75, 1), ("0%", "25%", "50%", "75%", "100%"))
        axes.set_xticks(places, [visible(bar.label) for bar in bars])
        strong: dict[str, Any] = {"weight": "bold", "color": _STAND_INS["--ink"]}
        for bar, x in zip(bars, places, strict=True):
            numbers = map(finite, (bar.value, bar.low, bar.high))
            value, low, high = (None if v is None else min(max(v, 0.0), 1.0) for v in numbers)
            peak = value or 0.0
            if value is not None:
                axes.bar(x, value, 0.62 * slot, color=_STAND_INS[colour_of[bar.label]], clip_on=False)
            if value is not None and low is not None and high is not None:
                shape = [x - 5, x + 5, x, x, x - 5, x + 5], [low, low, low, high, high, high]
                # The halo parts the whisker from a dark bar.
                for colour, wide, alpha in (("--paper", 3.6, 0.7), ("--ink", 1.2, 1.0)):
                    axes.plot(*shape, color=_STAND_INS[colour], lw=wide, alpha=alpha, clip_on=False)
                peak = max(peak, high)
            write(axes, bar.text, x, peak, 7, size=13, **strong)
            write(axes, bar.note, x, 0, -30)
        for first, after in pairwise([*starts, len(bars)]):
            write(axes, bars[first].group, (places[first] + places[after - 1]) / 2, 0, -52, **strong)

    return _chart(title, width, height, draw, natural=True)


def nice_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round numbers that enclose low..high, about four steps of 1, 2, 2.5 or 5 times a power of ten."""
    from matplotlib.ticker import MaxNLocator

    if high - low <= 1e-3 * max(abs(low), abs(high)):  # constant, or nearly: open a window around it
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    return list(map(float, MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=whole).tick_values(low, high)))


def tick_labels(ticks: Sequence[float], percent: bool = False) -> list[str]:
    """Six digits tell all ticks of an axis apart; powers of ten where decimals would not fit."""
    least = 1e-9 * max(map(abs, ticks), default=0.0)  # what is smaller is a 0 with a rounding error
    shown = [f"{(100 * t if percent else t) if abs(t) > least else 0:.6g}" for t in ticks]
    return [re.sub(r"e\+?(-?)0*", r"e\1", text) + "%" * percent for text in shown]


def smooth(points: Points, positions: int = 160) -> Points:
    """A centred moving mean over a tenth of the points, at up to `positions`; only a wider gap stays."""
    half = max(1, len(points) // 20) if len(points) >= FEW else 0  # of too few points, the line itself
    known = [i for i, (_, y) in enumerate(points) if y is not None]
    every = max(1, math.ceil(len(known) / positions))
    out: list[tuple[float, float | None]] = []
    for rank, i in enumerate(known):
        if rank and i - known[rank - 1] > max(1, 2 * half):
            out.append((points[i - 1][0], None))
        if rank % every == 0 or rank == len(known) - 1:
            near = [y for _, y in points[max(0, i - half) : i + half + 1] if y is not None]
            out.append((points[i][0], math.fsum(near) / len(near)))
    return out


def line_chart(
    title: str, series: Sequence[Points], least: float | None = None, most: float | None = None,
    percent: bool = False, x_label: str = "step",
) -> str:  # fmt: skip
    """Each series as a light raw line and a smooth one; gaps stay open; the axis holds `least` and `most`."""
    clean = [[(x, finite(y)) for x, y in points] for points in series]
    ys = [y for points in clean for _, y in points if y is not None]
    xs = [x for points in clean for x, _ in points]
    width, top, floor, height = 320.0, 10.0, 136.0, 170.0

    def draw(axes: "Axes") -> None:
        bounds = [*ys, *(b for b in (least, most) if b is not None)]
        ticks = nice_ticks(min(bounds), max(bounds)) if ys else [0.0, 1.0]
        labels = tick_labels(ticks, percent) if ys else ["", ""]
        left = 12 + 6.2 * max(map(len, labels))
        axes.set_position((left / width, 1 - floor / height, 1 - (left + 8) / width, (floor - top) / height))
        axes.set(xlabel=visible(x_label), ylim=(ticks[0], ticks[-1]))
        axes.set_yticks(ticks, labels)
        low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
        axes.set_xlim((low, high) if high > low else (low - 1, low + 1))  # a single step stands in the middle
        steps = [t for t in nice_ticks(low, high, whole=True) if low <= t <= high] if high > low else [low]
        axes.set_xticks(steps if ys else [], tick_labels(steps) if ys else [])
        if not ys:
            axes.text(0.5, 0.5, "no finite values", ha="center", va="center", transform=axes.transAxes)
        for i, points in enumerate(clean):
            if len(points) >= FEW:  # below that `smooth` is the identity, and one line is enough
                _strokes(axes, points, i, 1, 0.28)
            _strokes(axes, smooth(points), i, 1.8, 1.0)

    return _chart(title, width, height, draw)


def _strokes(axes: "Axes", points: Points, rank: int, wide: float, alpha: float) -> None:
    """Unbroken stretches as one path; a point alone between gaps as a dot, which a path would not show."""
    look: dict[str, Any] = {"color": _STAND_INS[SERIES[rank % len(SERIES)]], "alpha": alpha, "clip_on": False}
    ys = [math.nan, *(math.nan if y is None else y for _, y in points), math.nan]
    alone = [i for i in range(1, len(ys) - 1) if math.isnan(ys[i - 1]) and math.isnan(ys[i + 1])]
    dashes = DASHES[rank % len(DASHES)] if alpha == 1 else ()
    if any(not math.isnan(a + b) for a, b in pairwise(ys)):
        axes.plot([x for x, _ in points], ys[1:-1], lw=wide, dashes=dashes or (None, None), **look)
    for i in alone:
        if not math.isnan(ys[i]):  # no length and round ends: a dot
            x = points[i - 1][0]
            axes.plot([x, x], [ys[i], ys[i]], lw=2.4 * wide, solid_capstyle="round", **look)


def swatch(rank: int) -> str:
    """A short piece of the line that `line_chart` draws for its series number `rank`, for a legend."""
    i = rank % len(SERIES)
    dashes = f"; stroke-dasharray: {' '.join(f'{d:g}' for d in DASHES[i])}" if DASHES[i] else ""
    line = f'<path d="M1 3H23" style="fill: none; stroke-width: 1.8; stroke: var({SERIES[i]}){dashes}"/>'
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 24 6">{line}</svg>'


def standalone(chart: str) -> str:
    """A chart as a file of its own, with the colours of a page."""
    style = f"<style>{colours()} svg {{ background: var(--paper); }}{CHART_CSS}</style>"
    head, rest = chart.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'

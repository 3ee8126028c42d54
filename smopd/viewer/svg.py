"""Inline SVG for the static pages: a bar chart with error bars and a small line chart, as plain strings.

Here too: the escaping and the number formats that charts, page and terminal share. A chart carries class
names and no colours: `CHART_CSS` and the page's variables (--ink, --muted, --paper, --rule, --quiet,
--c0..--c5) colour it, so one drawing serves light, dark and print. It leaves out interaction, log scales,
dates and anything a library would be needed for.
"""

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any

COLOURS = 6
FEW = 10  # fewer points than this are not smoothed
CHART_CSS = """
svg.chart { display: block; width: 100%; height: auto; overflow: visible; font: 11px system-ui, sans-serif; }
svg.chart text { fill: var(--muted); }
svg.chart .value { fill: var(--ink); font-size: 13px; font-weight: 600; }
svg.chart .group { fill: var(--ink); font-weight: 600; letter-spacing: .04em; }
svg.chart .grid { stroke: var(--rule); stroke-width: 1; }
svg.chart .quiet { fill: var(--quiet); }
svg.chart .base { stroke: var(--muted); stroke-width: 1; }
svg.chart .whisker { stroke: var(--ink); stroke-width: 1.2; fill: none; }
svg.chart .halo { stroke: var(--paper); stroke-width: 3.6; stroke-opacity: .7; fill: none; }
svg .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg.chart .raw { fill: none; stroke-width: 1; stroke-opacity: .28; stroke-linejoin: round; }
""" + "".join(
    f"svg .s{i} {{ stroke: var(--c{i}); }} svg .f{i} {{ fill: var(--c{i}); }}\n" for i in range(COLOURS)
)
# Lines differ by dashes too, for readers and printers without colour.
DASHES = {1: "6 3.5", 2: "1 3.5", 3: "8 3.5 1 3.5", 4: "3 3", 5: "12 4"}
CHART_CSS += "".join(f"svg .line.s{i} {{ stroke-dasharray: {dash}; }}\n" for i, dash in DASHES.items())
CHART_CSS += "svg.swatch { width: 24px; height: 6px; vertical-align: .2em; margin-right: .35em; }\n"

Points = Sequence[tuple[float, float | None]]
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: str) -> str:
    """Text of unknown origin with line ends as newlines and every other control character or lone surrogate
    as U+FFFD.
    """
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def esc(text: object) -> str:
    """Text made safe for HTML and SVG, in content and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def finite(value: Any) -> float | None:
    """The value as a float, or None for what cannot be drawn: None, NaN, infinities, text."""
    try:
        number = float(value) if isinstance(value, Real) else math.nan  # Real: numpy's numbers too
    except OverflowError:
        return None
    return (
        number if abs(number) < 1e150 else None
    )  # absurd magnitudes would overflow the arithmetic of the axes


def _tenths(fraction: float) -> float:
    """A fraction in percent to one decimal, halves away from zero: 245 of 400 is 61.3%, as a reader would
    round it.
    """
    return math.copysign(math.floor(abs(fraction) * 1000 + 0.5 + 1e-9) / 10, fraction) + 0.0


def percent(value: float | None) -> str:
    """0.6125 -> "61.3%"."""
    number = finite(value)
    return "n/a" if number is None else f"{_tenths(number):.1f}%"


def points(value: float, sign: bool = True) -> str:
    """0.203 -> "+20.3": a difference of fractions in percentage points."""
    number = finite(value)
    if number is None:
        return "n/a"
    rounded = _tenths(number)
    return f"{rounded:+.1f}" if sign and rounded else f"{rounded:.1f}"


def p_value(p: float) -> str:
    """ "< 0.001", "0.034", "0.45"."""
    number = finite(p)
    if number is None:
        return "n/a"
    return "< 0.001" if number < 0.001 else f"{number:.3f}" if number < 0.1 else f"{number:.2f}"


def interval(low: float, high: float) -> str:
    """A 95% interval of a fraction, in percent: "[56.4, 66.0]"."""
    return (
        "n/a"
        if finite(low) is None or finite(high) is None
        else f"[{percent(low)[:-1]}, {percent(high)[:-1]}]"
    )


@dataclass(frozen=True)
class Bar:
    """One bar of `bar_chart`, on the scale 0..1; neighbours of one `group` stand together. `note` is a second
    label line.
    """

    group: str
    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One line of `line_chart`: points in the order of x, y None at a gap."""

    name: str
    points: Points


def _n(value: float) -> str:
    """A coordinate: two decimals at most, no trailing zeros, no minus zero."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def _text(x: float, y: float, words: str, anchor: str, css: str = "") -> str:
    name = f' class="{css}"' if css else ""
    return f'<text{name} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{esc(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    return f'<line class="{css}" x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"/>'


def _svg(title: str, width: float, height: float, parts: Sequence[str], natural: bool = False) -> str:
    style = f' style="width: {_n(width)}px; max-width: 100%"' if natural else ""
    head = f'<svg class="chart" role="img" viewBox="0 0 {_n(width)} {_n(height)}"{style}>'
    return f"{head}<title>{esc(title)}</title>{''.join(parts)}</svg>"


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Vertical bars on a fixed 0..100% axis, with error bars and value labels; a bar without a value is only
    labelled.
    """
    top, plot, left, between = 26.0, 180.0, 40.0, 26.0
    slot = max([68.0, *(7.0 * len(words) + 8 for bar in bars for words in (bar.label, bar.note, bar.text))])
    wide = 0.62 * slot
    floor, x = top + plot, left + between / 2
    labels = list(dict.fromkeys(bar.label for bar in bars))
    parts: list[str] = []
    spans: list[tuple[str, float, float]] = []
    for i, bar in enumerate(bars):
        if i and bar.group != bars[i - 1].group:
            x += between
        if not i or bar.group != bars[i - 1].group:
            spans.append((bar.group, x, x + slot))
        else:
            spans[-1] = (bar.group, spans[-1][1], x + slot)
        middle, value = x + slot / 2, finite(bar.value)
        low, high = finite(bar.low), finite(bar.high)
        parts.append(f"<g><title>{esc(f'{bar.group} {bar.label}: {bar.text} {bar.note}'.strip())}</title>")
        peak = floor
        if value is not None:
            value = min(max(value, 0.0), 1.0)
            peak = floor - plot * value
            rank = labels.index(
                bar.label
            )  # the first label is what the others are held against: a quiet grey
            css = f"bar f{(rank - 1) % COLOURS}" if rank else "bar quiet"
            box = f'x="{_n(middle - wide / 2)}" y="{_n(peak)}" width="{_n(wide)}" height="{_n(plot * value)}"'
            parts.append(f'<rect class="{css}" {box}/>')
        if value is not None and low is not None and high is not None:
            y_low, y_high = floor - plot * min(max(low, 0.0), 1.0), floor - plot * min(max(high, 0.0), 1.0)
            cap = f"M{_n(middle - 5)} {{0}}H{_n(middle + 5)}"
            stem = f"M{_n(middle)} {_n(y_low)}V{_n(y_high)}"
            shape = cap.format(_n(y_low)) + stem + cap.format(_n(y_high))
            parts += [
                f'<path class="{css}" d="{shape}"/>' for css in ("halo", "whisker")
            ]  # the halo parts it from a dark bar
            peak = min(peak, y_high)
        parts += [
            _text(middle, peak - 7, bar.text, "middle", "value"),
            _text(middle, floor + 16, bar.label, "middle"),
        ]
        parts += [_text(middle, floor + 30, bar.note, "middle") if bar.note else "", "</g>"]
        x += slot
    right = x + between / 2
    axis = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = floor - plot * share
        axis += [
            _line(left, y, right, y, "grid" if share else "base"),
            _text(left - 6, y + 4, f"{share:.0%}", "end"),
        ]
    groups = [_text((a + b) / 2, floor + 52, group, "middle", "group") for group, a, b in spans]
    return _svg(title, right + 4, floor + 60, [*axis, *parts, *groups], natural=True)


def nice_ticks(low: float, high: float, count: int = 4, whole: bool = False) -> list[float]:
    """Round numbers that enclose low..high, about `count` steps of 1, 2, 2.5 or 5 times a power of ten."""
    if high - low <= 1e-3 * max(abs(low), abs(high)):  # constant, or nearly: open a window around it
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999999)
    if whole:
        step = float(max(1, math.ceil(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(ticks: Sequence[float], percent: bool = False) -> list[str]:
    """Labels with as many decimals as the step needs; powers of ten where decimals would not fit."""
    scaled = [100 * t if percent else t for t in ticks]
    step = min((b - a for a, b in pairwise(scaled)), default=abs(scaled[0]) if scaled else 1.0) or 1.0
    largest = max((abs(t) for t in scaled), default=0.0)
    if not percent and (step < 1e-4 or largest >= 1e6):
        return [
            "0" if t == 0 else re.sub(r"e([+-])0*", r"e\1", f"{t:.5g}").replace("e+", "e") for t in scaled
        ]
    decimals = next((d for d in range(5) if abs(round(step, d) - step) < 1e-6 * step), 5)
    return [f"{round(t, decimals) + 0.0:.{decimals}f}{'%' if percent else ''}" for t in scaled]


def smooth(points: Points, positions: int = 160) -> Points:
    """A centred moving mean over about a tenth of the points, at up to `positions` of them; only a gap wider
    than that stays.
    """
    half = (
        max(1, len(points) // 20) if len(points) >= FEW else 0
    )  # too few points to average: the line itself
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


def _thin(points: Points, limit: int = 600) -> Points:
    """At most about `limit` points: the lowest and the highest of each stretch, so that no spike is lost."""
    if len(points) <= limit:
        return points
    size = math.ceil(2 * len(points) / limit)
    out: list[tuple[float, float | None]] = []
    for start in range(0, len(points), size):
        some = [(y, x) for x, y in points[start : start + size] if y is not None]
        out += sorted({(x, y) for y, x in (min(some), max(some))}) if some else [(points[start][0], None)]
    return out


def line_chart(title: str, series: Sequence[Series], least: float | None = None, most: float | None = None,
               percent: bool = False, x_label: str = "step") -> str:  # fmt: skip
    """Each series as a light raw line and a smoothed one; gaps stay open; the y axis holds `least` and `most`
    if given.
    """
    clean = [[(x, finite(y)) for x, y in line.points] for line in series]
    ys = [y for points in clean for _, y in points if y is not None]
    xs = [x for points in clean for x, y in points]
    width, top, floor = 320.0, 10.0, 136.0
    if not ys:
        note = _text(width / 2, (top + floor) / 2, "no finite values", "middle")
        return _svg(title, width, floor + 34, [_line(34, floor, width - 6, floor, "base"), note])
    bounds = [*ys, *(b for b in (least, most) if b is not None)]
    ticks = nice_ticks(min(bounds), max(bounds))
    labels = tick_labels(ticks, percent)
    left, right = 12.0 + 6.2 * max(map(len, labels)), width - 8
    x_low, x_high = min(xs), max(xs)

    def at(x: float, y: float) -> str:
        share = (
            (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        )  # a single step stands in the middle
        return f"{_n(left + share * (right - left))} {_n(floor - (y - ticks[0]) / (ticks[-1] - ticks[0]) * (floor - top))}"

    parts = []
    for tick, label in zip(ticks, labels, strict=True):
        y = float(at(x_low, tick).split()[1])
        parts += [
            _line(left, y, right, y, "base" if tick == ticks[0] else "grid"),
            _text(left - 6, y + 4, label, "end"),
        ]
    steps = (
        [t for t in nice_ticks(x_low, x_high, 4, whole=True) if x_low <= t <= x_high]
        if x_high > x_low
        else [x_low]
    )
    for tick, label in zip(steps, tick_labels(steps), strict=True):
        x = float(at(tick, ticks[0]).split()[0])
        parts += [_line(x, floor, x, floor + 4, "base"), _text(x, floor + 16, label, "middle")]
    parts.append(_text((left + right) / 2, floor + 30, x_label, "middle"))
    drawn = [(i % COLOURS, _thin(points), smooth(points)) for i, points in enumerate(clean)]
    for colour, raw, smoothed in drawn:
        if len(raw) >= FEW:  # below that `smooth` is the identity, and one line is enough
            parts += _strokes(raw, f"raw s{colour}", f"f{colour}", 0.9, at)
        parts += _strokes(smoothed, f"line s{colour}", f"f{colour}", 2.2, at)
    return _svg(title, width, floor + 34, parts)


def swatch(rank: int) -> str:
    """A short piece of the line that `line_chart` draws for its series number `rank`, for a legend."""
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 24 6"><path class="line s{rank % COLOURS}" d="M1 3H23"/></svg>'


def _strokes(
    points: Points, css: str, dot: str, radius: float, at: Callable[[float, float], str]
) -> list[str]:
    """Unbroken stretches as paths; a point alone between gaps as a dot, which a path would not show."""
    runs: list[list[str]] = [[]]
    for x, y in points:
        if y is None:
            runs.append([])
        else:
            runs[-1].append(at(x, y))
    path = "".join("M" + "L".join(run) for run in runs if len(run) > 1)
    alone = [run[0].split() for run in runs if len(run) == 1]
    dots = [f'<circle class="{dot}" cx="{x}" cy="{y}" r="{_n(radius)}"/>' for x, y in alone]
    return [*([f'<path class="{css}" d="{path}"/>'] if path else []), *dots]

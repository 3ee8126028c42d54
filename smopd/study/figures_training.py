"""Figures of training logs, one per model and point: curves, confidence against the teacher, gradients."""

import re
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smopd.formatting import finite
from smopd.study.drawing import FIGURES, MARKERS, MUTED, OTHER_COLOURS, WIDE, Figure, GridPoint, Plot

from smopd.study.drawing import name_rows, note, settings, spread, tint, words  # isort: skip
from smopd.study.results import Cell, Results

METRICS, SHARES = (FIGURES[kind]["panels"] for kind in ("curves", "gradients"))


class Line(NamedTuple):
    name: str  # in the legend
    spot: GridPoint
    arm: str
    cells: list[Cell]
    colour: str
    marker: str

    def number(self, *parts: str) -> str:
        return self.spot.number(self.arm, *parts)

    def known(self, log: str, key: str) -> list[float]:
        """One value per run that has one; `log` is "tokens" or "gradients" of a cell."""
        logs = (getattr(cell, log) or {} for cell in self.cells)
        return [value for value in (finite(one.get(key)) for one in logs) if value is not None]


def training_figures(results: Results) -> list[Figure]:
    shared = _lines(Plot(results))
    figures = (draw(Plot(results), *one) for draw in (_curves, _calibration, _gradients) for one in shared)
    return [*filter(None, figures)]


def _lines(plot: Plot) -> list[tuple[GridPoint, list[Line]]]:
    """What shares a figure: the arms of a model and point, or with a single arm the points of a model."""
    if len(plot.arms) != 1 or len(plot.spots) == len({spot.model for spot in plot.spots}):
        looks = {arm: (plot.colours[arm], plot.shapes[arm]) for arm in plot.arms}
        return [(s, [Line(a, s, a, plot.cells(s, a), *looks[a]) for a in plot.arms]) for s in plot.spots]
    by_model: dict[str, list[Line]] = {}
    for spot in plot.spots:
        lines = by_model.setdefault(spot.model, [])
        look = OTHER_COLOURS[len(lines) % len(OTHER_COLOURS)], MARKERS[len(lines) % len(MARKERS)]
        name, arm = ", ".join(settings(spot.point)), plot.arms[0]
        lines.append(Line(name, spot, arm, plot.cells(spot, arm), *look))
    return [(GridPoint(m, {}, m if len(by_model) > 1 else ""), lines) for m, lines in by_model.items()]


def _tell_apart(kind: str, at: GridPoint) -> tuple[str, str]:
    """A unique name for a figure, and the suffix for its texts."""
    name = f"{kind}-{re.sub(r'[^a-z0-9.]+', '-', at.label.lower()).strip('-.')}".removesuffix("-")
    return name, f" ({at.label})" if at.label else ""


def _curves(plot: Plot, at: GridPoint, lines: list[Line]) -> Figure | None:
    logged = list(dict.fromkeys(key for line in lines for cell in line.cells for key in cell.curves))
    terms = ", ".join(dict.fromkeys(key.partition("/")[2] for key in logged if "/" in key))
    ordered = [key for metric in METRICS for key in logged if key.partition("/")[0] == metric]
    data: dict[str, dict[str, np.ndarray]] = {}
    for key in dict.fromkeys([*ordered, *logged]):
        stacked = {line.name: _stack_seeds(line.cells, key) for line in lines}
        if known := {name: rows for name, rows in stacked.items() if len(rows)}:
            data[key] = known
    if not data:
        return None
    metrics = list(data)[:9]  # more would be too small to read
    window = max(rows.shape[1] for by in data.values() for rows in by.values()) // 20
    drawn = [line for line in lines if any(line.name in data[key] for key in metrics)]
    looks = list(zip(drawn, cycle(("-", "--", "-.", ":")), strict=False))
    banded = len(drawn) <= 6  # more bands would hide each other

    def panel(axes: Axes, key: str) -> None:
        for line, dashes in looks:
            rows = data[key].get(line.name)
            if rows is None:
                continue
            smooth = np.array([smoothed(row, window) for row in rows])
            mean, low, high = (_reduce_over_seeds(f, smooth) for f in (np.nanmean, np.nanmin, np.nanmax))
            steps = np.arange(1, len(mean) + 1)
            if banded and len(rows) > 1:
                axes.fill_between(steps, low, high, color=line.colour, alpha=0.16, lw=0)
            axes.plot(steps, mean, color=line.colour, ls=dashes, lw=1.3)
            last = np.flatnonzero(np.isfinite(mean))[-1]
            plot.numbers.append((line.number(key, f"step {last + 1}"), float(mean[last])))
        metric, _, term = key.partition("/")
        title = METRICS[metric].format(term=term or terms) if metric in METRICS else key
        axes.set_title(words(title, 34, 2), loc="left")
        axes.set_xlabel("step" if key in metrics[-3:] else "")
        axes.grid()

    keys = [Line2D([], [], color=line.colour, ls=ls, lw=1.4, label=line.name) for line, ls in looks]
    name, of = _tell_apart("curves", at)
    band = " with a band from the lowest to the highest seed" if banded else ""
    over = f"mean over seeds{band}" if any(len(line.cells) > 1 for line in lines) else "a single seed"
    around = f" Every value is the mean of {2 * (window // 2) + 1} steps around it." if window > 1 else ""
    texts = {"of": of, "over": over, "smoothing": around}
    size = (WIDE, 0.8 + 1.9 * -(-len(metrics) // 3))
    return plot.figure("curves", texts, metrics, panel, size, keys, name=name, in_key=5, sharex=True)


def _stack_seeds(cells: Sequence[Cell], key: str) -> np.ndarray:
    """One metric as [seeds, steps], NaN for missing values, without seeds that have none at all."""
    rows = [np.array([finite(v) for v in cell.curves.get(key, [])], dtype=float) for cell in cells]
    length = max(map(len, rows), default=0)
    known = (row for row in rows if np.isfinite(row).any())
    return np.array([np.pad(row, (0, length - len(row)), constant_values=np.nan) for row in known])


def smoothed(row: np.ndarray, window: int) -> np.ndarray:
    """Centred moving average over finite values; a gap stays if its window has none."""
    half = window // 2
    pieces = (row[max(0, i - half) : i + half + 1] for i in range(len(row)))
    return np.array([np.nanmean(p) if np.isfinite(p).any() else np.nan for p in pieces])


def _reduce_over_seeds(of: Any, rows: np.ndarray) -> np.ndarray:
    return np.array([of(column) if np.isfinite(column).any() else np.nan for column in rows.T])


def _calibration(plot: Plot, at: GridPoint, lines: list[Line]) -> Figure | None:
    lines = [line for line in lines if any(cell.tokens for cell in line.cells)]
    if not lines:
        return None

    def curve(axes: Axes, line: Line, bins: list[dict[str, float]], x: str, y: str, **style: Any) -> None:
        path = [(b[x], b[y]) for b in bins if x in b and y in b]
        if path:
            axes.plot(*zip(*path, strict=True), color=line.colour, ms=3.2, lw=1.2, **style)

    def pool(line: Line, kind: str, name: str, keys: Sequence[str]) -> list[dict[str, float]]:
        bins = pooled([cell.tokens for cell in line.cells if cell.tokens], name, keys)
        for i, one in enumerate(bins):
            if "low" in keys:
                one["middle"] = (one.get("low", 0.0) + one.get("high", 0.0)) / 2
            known = (key for key in ("student", "teacher", "middle", "agreement") if key in one)
            plot.numbers.extend((line.number(f"{kind} {i}", key), one[key]) for key in known)
        return bins

    def confidence(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls=":")
        for line in lines:
            bins = pool(line, "bin", "bins", ("student", "teacher", "agreement"))
            curve(axes, line, bins, "student", "teacher", marker=line.marker)
            curve(axes, line, bins, "student", "agreement", ls="--")
        axes.set(xlim=(0, 1), ylim=(0, 1.02), title="sampled token")
        axes.set(xlabel="student's probability", ylabel="teacher's probability")
        axes.grid()

    def agreement(axes: Axes) -> None:
        for line in lines:
            deciles = pool(line, "entropy", "by_entropy", ("low", "high", "agreement"))
            curve(axes, line, deciles, "middle", "agreement", marker=line.marker)
        axes.set(xlabel="student's entropy, nats", ylabel="share of tokens", title="teacher agrees")
        axes.margins(y=0.1)
        axes.grid()

    def area(axes: Axes) -> None:
        for row, line in enumerate(lines):
            estimate, name = spread(line.known("tokens", "auroc")), line.number("auroc")
            if estimate is None:
                continue
            ends = [*line.known("tokens", "auroc_low"), *line.known("tokens", "auroc_high")]
            if estimate.seeds == 1 and len(ends) == 2:  # over rollouts of the run
                axes.plot(ends, [row, row], color=line.colour, lw=0.9, marker="|", ms=5)
                plot.numbers.extend([(f"{name}/low", ends[0]), (f"{name}/high", ends[1])])
            plot.mean_point(axes, name, estimate, row, line.colour, line.marker)
            note(axes, f"{estimate.mean:.2f}", (estimate.mean, row), (0, 5), ha="center")
        axes.axvline(0.5, color=MUTED, lw=0.8, ls=":")
        axes.margins(x=0.14)
        name_rows(axes, [line.name for line in lines], "AUROC", "entropy finds disagreement")

    name, of = _tell_apart("calibration", at)
    look: dict[str, Any] = {"ms": 4, "lw": 1.4}
    keys = [Line2D([], [], color=line.colour, marker=line.marker, label=line.name, **look) for line in lines]
    keys.append(Line2D([], [], color=MUTED, ls="--", lw=1.4, label="teacher agrees, share"))
    size, shown = (WIDE, max(3.3, 1.5 + 0.32 * len(lines))), (confidence, agreement, area)
    form: dict[str, Any] = {"name": name, "whisker": "", "in_key": 5}
    return plot.figure("calibration", {"of": of}, shown, lambda axes, draw: draw(axes), size, keys, **form)


def pooled(logs: Iterable[dict[str, Any]], name: str, keys: Sequence[str]) -> list[dict[str, float]]:
    """Pool the bins of several runs, weighted by count: probability bins by their lower end, entropy bins by
    their place from the top (they are quantiles, of which the lowest may coincide).
    """
    groups: dict[float, list[dict[str, Any]]] = {}
    for bins in (log.get(name) or [] for log in logs):
        for place, one in enumerate(bins):
            if one.get("count"):
                key = one.get("low") or 0.0 if name == "bins" else place - len(bins)
                groups.setdefault(key, []).append(one)
    means = []
    for _, group in sorted(groups.items()):
        mean = {"count": float(sum(one["count"] for one in group))}
        for field in keys:
            known = [(one["count"], value) for one in group if (value := finite(one.get(field))) is not None]
            if known:
                mean[field] = sum(c * v for c, v in known) / sum(c for c, _ in known)
        means.append(mean)
    return means


def _gradients(plot: Plot, at: GridPoint, lines: list[Line]) -> Figure | None:
    lines = [line for line in lines if any(line.known("gradients", key) for key in SHARES)]
    if not lines:
        return None
    keys = [key for key in (*SHARES, "cosine") if any(line.known("gradients", key) for line in lines)]
    names = [line.name for line in lines]

    def pale(colour: str) -> dict[str, Any]:
        return {"facecolor": tint(colour, 0.75), "edgecolor": colour, "hatch": "////", "lw": 0}

    def panel(axes: Axes, key: str) -> None:
        for row, line in enumerate(lines):
            estimate = spread(line.known("gradients", key))
            if estimate is not None and key in SHARES:
                dropped, kept = 100 * estimate.mean, 100 - 100 * estimate.mean
                axes.barh(row, kept, 0.62, color=line.colour, lw=0)
                axes.barh(row, dropped, 0.62, left=kept, **pale(line.colour))
                note(axes, f"{dropped:.0f}", (100, row), (3, 0), va="center")
                plot.numbers.append((line.number(key), dropped))
            elif estimate is not None:
                plot.mean_point(axes, line.number(key), estimate, row, line.colour, "o")
        if key in SHARES:
            name_rows(axes, names, "%", SHARES[key])
            axes.set(xlim=(0, 113), xticks=(0, 50, 100))
            axes.grid(False)
        else:
            name_rows(axes, names, "cosine", "kept and dropped part")
            axes.axvline(0, color=MUTED, lw=0.8)
            axes.set(xlim=(-1.05, 1.05), xticks=(-1, 0, 1))

    name, of = _tell_apart("gradients", at)
    angle = " Right: the cosine of the angle between the two parts' gradients." if "cosine" in keys else ""
    texts, size = {"of": of, "angle": angle}, (WIDE, max(2.3, 1.2 + 0.36 * len(lines)))
    dropped = Patch(label="dropped (the number, in %)", **pale(MUTED))
    handles = [Patch(facecolor=MUTED, lw=0, label="kept"), dropped]
    return plot.figure("gradients", texts, keys, panel, size, handles, name=name, columns=4, sharey=True)

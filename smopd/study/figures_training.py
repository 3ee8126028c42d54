"""Figures of what was logged in training: curves, the student's confidence against the teacher's, gradients.

There is one of each for every model and point of the axes that has the log; where one arm runs over an axis,
its curves share a figure. It leaves out the accuracies (figures.py) and how the logs are read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from smopd.formatting import finite
from smopd.study.drawing import (
    MARKERS,
    MUTED,
    OTHER_COLOURS,
    WIDE,
    Figure,
    GridPoint,
    Plot,
    grid,
    label,
    legend,
)

from smopd.study.drawing import name_rows, note, of_spot, settings, spread, tint, words  # isort: skip
from smopd.study.results import Cell, Results

# Metric, also of a term of the loss (`metric/term`), and the title of its panel.
METRICS = {
    "loss": "loss", "outcome": "right final answers, share", "clipped": "clipped tokens, {} turns",
    "kept": "kept tokens, {} turns", "entropy": "entropy, {} turns, nats",
    "divergence": "divergence, {} turns, nats", "grad_norm": "gradient norm",
}  # fmt: skip
BANDS = 6  # of more lines than this the bands would hide each other
PANELS = 9  # more curves than this would be too small to read
SHARES = {"tokens_dropped": "tokens", "divergence_dropped": "divergence"}
SHARES |= {"norm_share_dropped": "gradient norm"}
DASHES = ("-", "--", "-.", ":")


class Line(NamedTuple):
    """One line or row of a figure: its runs and how it looks."""

    spot: GridPoint
    arm: str
    cells: list[Cell]
    colour: str
    marker: str


Lines = dict[str, Line]  # by the name in the key


def figures_of(results: Results) -> list[tuple[GridPoint, Lines]]:
    """What shares a figure: the arms of a model and point; of a single arm, the points of a model."""
    plot = Plot(results)
    if len(plot.arms) != 1 or len(plot.spots) == len({spot.model for spot in plot.spots}):
        looks = {arm: (plot.colours[arm], plot.shapes[arm]) for arm in plot.arms}
        return [(s, {a: Line(s, a, plot.cells(s, a), *looks[a]) for a in plot.arms}) for s in plot.spots]
    found: dict[str, Lines] = {}
    for spot in plot.spots:
        lines = found.setdefault(spot.model, {})
        colour, marker = OTHER_COLOURS[len(lines) % len(OTHER_COLOURS)], MARKERS[len(lines) % len(MARKERS)]
        cells = plot.cells(spot, plot.arms[0])
        lines[", ".join(settings(spot.point))] = Line(spot, plot.arms[0], cells, colour, marker)
    return [(GridPoint(model, {}, model if len(found) > 1 else ""), lines) for model, lines in found.items()]


def _of(spot: GridPoint) -> str:
    return f" ({spot.label})" if spot.label else ""


def _known(logs: Iterable[dict[str, Any]], key: str) -> list[float]:
    return [value for value in (finite(log.get(key)) for log in logs) if value is not None]


def curve_figures(results: Results) -> list[Figure]:
    """Training curves, a panel a metric: the mean over seeds, and a band from the lowest to the highest."""
    made = [_curves(Plot(results), at, lines) for at, lines in figures_of(results)]
    return [figure for figure in made if figure is not None]


def _curves(plot: Plot, at: GridPoint, lines: Lines) -> Figure | None:
    cells = {name: line.cells for name, line in lines.items()}
    logged = list(dict.fromkeys(key for group in cells.values() for cell in group for key in cell.curves))
    terms = ", ".join(dict.fromkeys(key.partition("/")[2] for key in logged if "/" in key))
    ordered = [key for metric in METRICS for key in logged if key.partition("/")[0] == metric]
    data: dict[str, dict[str, np.ndarray]] = {}
    for key in dict.fromkeys([*ordered, *logged]):
        stacked = {name: _stacked(group, key) for name, group in cells.items()}
        data[key] = {name: rows for name, rows in stacked.items() if rows is not None}
    metrics = [key for key, by in data.items() if by][:PANELS]
    if not metrics:
        return None
    window = max(rows.shape[1] for by in data.values() for rows in by.values()) // 20
    names = [name for name in lines if any(name in data[key] for key in metrics)]
    banded = len(names) <= BANDS

    def panel(axes: Axes, key: str) -> None:
        for place, name in enumerate(names):
            rows = data[key].get(name)
            if rows is None:
                continue
            spot, arm, _, colour, _ = lines[name]
            smooth = np.array([smoothed(row, window) for row in rows])
            mean, low, high = (_over_seeds(f, smooth) for f in (np.nanmean, np.nanmin, np.nanmax))
            steps = np.arange(1, len(mean) + 1)
            if banded and len(rows) > 1:
                axes.fill_between(steps, low, high, color=colour, alpha=0.16, lw=0)
            axes.plot(steps, mean, color=colour, ls=DASHES[place % len(DASHES)], lw=1.3)
            last = np.flatnonzero(np.isfinite(mean))[-1]
            plot.numbers.append((label(spot, arm, key, f"step {last + 1}"), float(mean[last])))
        metric, _, term = key.partition("/")
        title = METRICS[metric].format(term or terms) if metric in METRICS else key
        axes.set_title(words(title, 34, 2), loc="left")
        axes.grid()

    def draw(sheet: Sheet) -> None:
        for axes, key in zip(made := grid(sheet, len(metrics), sharex=True), metrics, strict=True):
            panel(axes, key)
        for axes in made[-3:]:
            axes.set_xlabel("step")
        looks = [(lines[name].colour, DASHES[i % len(DASHES)], name) for i, name in enumerate(names)]
        legend(sheet, [Line2D([], [], color=c, ls=dashes, label=name) for c, dashes, name in looks], 5)

    band = " with a band from the lowest to the highest seed" if banded else ""
    several = any(len(group) > 1 for group in cells.values())
    caption = f"Training step by step{_of(at)}, {f'mean over seeds{band}' if several else 'a single seed'}."
    if window > 1:
        caption += f" Every value is the mean of {2 * (window // 2) + 1} steps around it."
    size = (WIDE, 0.8 + 1.9 * -(-len(metrics) // 3))
    return plot.finish(of_spot("curves", at), f"Training curves{_of(at)}", caption, size, draw)


def _stacked(cells: Sequence[Cell], key: str) -> np.ndarray | None:
    """[seeds, steps] of one metric, NaN where there is no value; None where there is none at all."""
    rows = [[np.nan if v is None else v for v in map(finite, cell.curves.get(key, []))] for cell in cells]
    length = max(map(len, rows), default=0)
    filled = [row + [np.nan] * (length - len(row)) for row in rows if np.isfinite(row).any()]
    return np.array(filled) if filled else None


def smoothed(row: np.ndarray, window: int) -> np.ndarray:
    """Every value as the mean of half a window to each side; a gap stays where nothing is near."""
    half = window // 2
    pieces = (row[max(0, i - half) : i + half + 1] for i in range(len(row)))
    return np.array([np.nanmean(p) if np.isfinite(p).any() else np.nan for p in pieces])


def _over_seeds(of: Any, rows: np.ndarray) -> np.ndarray:
    return np.array([of(column) if np.isfinite(column).any() else np.nan for column in rows.T])


def calibration_figures(results: Results) -> list[Figure]:
    """The student's confidence against the teacher's, agreement by entropy, and AUROC, from token logs."""
    made = []
    for at, lines in figures_of(results):
        logs = {name: [cell.tokens for cell in line.cells if cell.tokens] for name, line in lines.items()}
        if logs := {name: found for name, found in logs.items() if found}:
            made.append(_calibration(Plot(results), at, lines, logs))
    return made


def _calibration(plot: Plot, at: GridPoint, lines: Lines, logs: dict[str, list[dict[str, Any]]]) -> Figure:
    def curve(axes: Axes, name: str, bins: list[dict[str, float]], x: str, y: str, **style: Any) -> None:
        found = [(b[x], b[y]) for b in bins if x in b and y in b]
        if found:
            axes.plot(*zip(*found, strict=True), color=lines[name].colour, ms=3.2, lw=1.2, **style)

    def curves(left: Axes, middle: Axes, name: str, tokens: list[dict[str, Any]]) -> None:
        spot, arm, _, _, marker = lines[name]
        bins = pooled(tokens, "bins", ("student", "teacher", "agreement"))
        curve(left, name, bins, "student", "teacher", marker=marker)
        curve(left, name, bins, "student", "agreement", ls="--")
        deciles = pooled(tokens, "by_entropy", ("low", "high", "agreement"))
        for one in deciles:
            one["middle"] = (one.get("low", 0.0) + one.get("high", 0.0)) / 2
        curve(middle, name, deciles, "middle", "agreement", marker=marker)
        for kind, groups in (("bin", bins), ("entropy", deciles)):
            for i, group in enumerate(groups):
                known = (key for key in ("student", "teacher", "middle", "agreement") if key in group)
                plot.numbers.extend((label(spot, arm, f"{kind} {i}", key), group[key]) for key in known)

    def area(axes: Axes, row: int, line: Line, tokens: list[dict[str, Any]]) -> None:
        found, name = spread(_known(tokens, "auroc")), label(line.spot, line.arm, "auroc")
        if found is None:
            return
        only = next(t for t in tokens if finite(t.get("auroc")) is not None)
        low, high = (finite(only.get(f"auroc_{end}")) for end in ("low", "high"))
        if found.seeds == 1 and low is not None and high is not None:  # the interval over rollouts of the run
            axes.plot([low, high], [row, row], color=line.colour, lw=0.9, marker="|", ms=5)
            plot.numbers.extend([(f"{name}/low", low), (f"{name}/high", high)])
        plot.mean_point(axes, name, found, row, line.colour, line.marker)
        note(axes, f"{found.mean:.2f}", (found.mean, row), (0, 5), ha="center")

    def draw(sheet: Sheet) -> None:
        left, middle, right = sheet.subplots(1, 3)
        left.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls=":")
        for row, (name, tokens) in enumerate(logs.items()):
            curves(left, middle, name, tokens)
            area(right, row, lines[name], tokens)
        left.set(xlim=(0, 1), ylim=(0, 1.02), title="sampled token")
        left.set(xlabel="student's probability", ylabel="teacher's probability")
        middle.set(xlabel="student's entropy, nats", ylabel="share of tokens", title="teacher agrees")
        middle.margins(y=0.1)
        name_rows(right, list(logs))
        right.axvline(0.5, color=MUTED, lw=0.8, ls=":")
        right.margins(x=0.14)
        right.set(xlabel="AUROC", title="entropy finds disagreement")
        for axes in (left, middle, right):
            axes.grid(axis="x" if axes is right else "both")
        looks = [(lines[name].colour, lines[name].marker, name) for name in logs]
        keys = [Line2D([], [], color=c, marker=marker, ms=4, label=name) for c, marker, name in looks]
        legend(sheet, [*keys, Line2D([], [], color=MUTED, ls="--", label="teacher agrees, share")], 5)

    caption = (
        f"Tokens of middle turns{_of(at)}, runs of an arm pooled. Left: the teacher's mean probability of "
        "the sampled token against the student's, and the share of tokens the teacher agrees with (dashed). "
        "Middle: that share by the student's entropy. Right: AUROC of entropy for disagreement, 0.5 where "
        "entropy says nothing; whiskers are 95% intervals over seeds, or over rollouts where there is a "
        "single seed."
    )
    size = (WIDE, max(3.3, 1.5 + 0.32 * len(logs)))
    title = f"Calibration of middle-turn tokens{_of(at)}"
    return plot.finish(of_spot("calibration", at), title, caption, size, draw, "")


def pooled(logs: Iterable[dict[str, Any]], name: str, keys: Sequence[str]) -> list[dict[str, float]]:
    """The bins of several runs as one, weighted by count: of probability by their ends, those of entropy
    by their place from the top (they are quantiles of a run, of which the lowest may fall together).
    """
    groups: dict[float, list[dict[str, Any]]] = {}
    for log in logs:
        bins = log.get(name) or []
        for place, one in enumerate(bins):
            groups.setdefault(one.get("low") or 0.0 if name == "bins" else place - len(bins), []).append(one)
    found = []
    for key in sorted(groups):
        mean: dict[str, float] = {"count": float(sum(one.get("count") or 0 for one in groups[key]))}
        for field in keys:
            known = [(one["count"], finite(one.get(field))) for one in groups[key] if one.get("count")]
            weighted = [(count, value) for count, value in known if value is not None]
            if weighted:
                mean[field] = sum(c * v for c, v in weighted) / sum(c for c, _ in weighted)
        if mean["count"]:
            found.append(mean)
    return found


def gradient_figures(results: Results) -> list[Figure]:
    """What the mask drops of tokens, divergence and gradient, and the angle between the two parts."""
    made = []
    for at, lines in figures_of(results):
        logs = {name: [c.gradients for c in line.cells if c.gradients] for name, line in lines.items()}
        if logs := {name: f for name, f in logs.items() if any(_known(f, key) for key in SHARES)}:
            made.append(_gradients(Plot(results), at, lines, logs))
    return made


def _gradients(plot: Plot, at: GridPoint, lines: Lines, logs: dict[str, list[dict[str, Any]]]) -> Figure:
    shares = [key for key in SHARES if any(_known(group, key) for group in logs.values())]
    angle = any(_known(group, "cosine") for group in logs.values())

    def pale(colour: str) -> dict[str, Any]:
        return {"facecolor": tint(colour, 0.75), "edgecolor": colour, "hatch": "////", "lw": 0}

    def share(axes: Axes, key: str) -> None:
        for row, (name, group) in enumerate(logs.items()):
            spot, arm, _, colour, _ = lines[name]
            if (found := spread(_known(group, key))) is None:
                continue
            dropped, kept = 100 * found.mean, 100 - 100 * found.mean
            axes.barh(row, kept, 0.62, color=colour, lw=0)
            axes.barh(row, dropped, 0.62, left=kept, **pale(colour))
            note(axes, f"{dropped:.0f}", (100, row), (3, 0), va="center")
            plot.numbers.append((label(spot, arm, key), dropped))
        axes.set(xlim=(0, 113), xticks=(0, 50, 100), xlabel="%", title=SHARES[key])

    def cosine(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, lw=0.8)
        for row, (name, group) in enumerate(logs.items()):
            spot, arm, _, colour, _ = lines[name]
            if (found := spread(_known(group, "cosine"))) is not None:
                plot.mean_point(axes, label(spot, arm, "cosine"), found, row, colour, "o")
        axes.set(xlim=(-1.05, 1.05), xticks=(-1, 0, 1), xlabel="cosine", title="kept and dropped part")
        axes.grid(axis="x")

    def draw(sheet: Sheet) -> None:
        made = grid(sheet, len(shares) + angle, 4, sharey=True)
        for axes, key in zip(made, shares, strict=False):
            share(axes, key)
        if angle:
            cosine(made[-1])
        for axes in made:
            name_rows(axes, list(logs))
        dropped = Patch(label="dropped (the number, in %)", **pale(MUTED))
        plot.key(sheet, [Patch(facecolor=MUTED, lw=0, label="kept"), dropped])

    caption = (
        f"What the mask drops of the middle turns{_of(at)}, mean over seeds: share of tokens, of their "
        "divergence, and of the summed norms of both parts' gradients; for an arm without a mask, what the "
        "paper's would drop."
    )
    caption += " Right: the cosine of the angle between the two parts' gradients." if angle else ""
    size = (WIDE, max(2.3, 1.2 + 0.36 * len(logs)))
    return plot.finish(of_spot("gradients", at), f"What the mask drops{_of(at)}", caption, size, draw)

"""Figures of what was logged in training: curves, the student's confidence against the clean teacher's, the
gradient's shares.

There is one of each for every model and point of the axes that has the log; where one arm runs over an axis,
its curves share a figure. Curves are smoothed lightly for the eye. It leaves out the accuracies (figures.py)
and how the logs are read.
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
    Spot,
    arm_colours,
    arm_markers,
    grid,
    legend,
    name_rows,
    of_spot,
    spots,
    spread,
    tint,
    words,
)
from smopd.study.marks import Marks, Numbers, arms_with_results, finish, label, mean_point, spread_numbers
from smopd.study.results import Cell, Results

METRICS = {
    "loss": "loss", "outcome": "right final answers, share", "clipped/middle": "clipped tokens, middle turns",
    "kept": "kept tokens, middle turns", "entropy/middle": "entropy, middle turns, nats",
    "divergence/middle": "divergence, middle turns, nats", "grad_norm": "gradient norm",
}  # fmt: skip
BANDS = 6  # of more lines than this the bands would hide each other
PANELS = 9  # more curves than this would be too small to read
SHARES = {
    "tokens_dropped": "tokens",
    "divergence_dropped": "divergence",
    "norm_share_dropped": "gradient norm",
}
DASHES = ("-", "--", "-.", ":")


class Line(NamedTuple):
    """One line or row of a figure: its runs and how it looks."""

    spot: Spot
    arm: str
    cells: list[Cell]
    colour: str
    marker: str


Lines = dict[str, Line]  # by the name in the key


def figures_of(results: Results) -> list[tuple[Spot, Lines]]:
    """What shares a figure: the arms of a model and point; the points of a model where there is but one arm."""
    arms, places = arms_with_results(results), spots(results)
    colours, shapes = arm_colours(results), arm_markers(results)
    if len(arms) != 1 or len(places) == len({spot.model for spot in places}):
        return [
            (
                spot,
                {
                    arm: Line(
                        spot, arm, results.group(spot.model, arm, spot.point), colours[arm], shapes[arm]
                    )
                    for arm in arms
                },
            )
            for spot in places
        ]
    found: dict[str, Lines] = {}
    for spot in places:
        lines = found.setdefault(spot.model, {})
        looks = OTHER_COLOURS[len(lines) % len(OTHER_COLOURS)], MARKERS[len(lines) % len(MARKERS)]
        name = ", ".join(f"{setting}={value}" for setting, value in spot.point.items())
        lines[name] = Line(spot, arms[0], results.group(spot.model, arms[0], spot.point), *looks)
    return [(Spot(model, {}, model if len(found) > 1 else ""), lines) for model, lines in found.items()]


def curve_figures(results: Results) -> list[Figure]:
    """Training curves, a panel a metric: the mean over seeds, and a band from the lowest seed to the highest."""
    made = [_curves(at, lines) for at, lines in figures_of(results)]
    return [figure for figure in made if figure is not None]


def _curves(at: Spot, lines: Lines) -> Figure | None:
    cells = {name: line.cells for name, line in lines.items()}
    known = dict.fromkeys(
        [*METRICS, *(key for group in cells.values() for cell in group for key in cell.curves)]
    )
    stacked = {key: {name: _stacked(group, key) for name, group in cells.items()} for key in known}
    data = {key: {n: rows for n, rows in by.items() if rows is not None} for key, by in stacked.items()}
    metrics = [key for key, by in data.items() if by][:PANELS]
    if not metrics:
        return None
    numbers, window = Numbers(), max(rows.shape[1] for by in data.values() for rows in by.values()) // 20
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
            numbers.append((label(spot, arm, key, f"step {last + 1}"), float(mean[last])))
        axes.set_title(words(METRICS.get(key, key), 34, 2), loc="left")
        axes.grid()

    def draw(sheet: Sheet) -> None:
        panels = grid(sheet, len(metrics), sharex=True)
        for axes, key in zip(panels, metrics, strict=True):
            panel(axes, key)
        for axes in panels[-3:]:
            axes.set_xlabel("step")
        keys = [
            Line2D([], [], color=lines[n].colour, ls=DASHES[i % len(DASHES)], label=n)
            for i, n in enumerate(names)
        ]
        legend(sheet, keys, 5)

    several = any(len(group) > 1 for group in cells.values())
    band = " with a band from the lowest to the highest seed" if banded else ""
    means = f", mean over seeds{band}" if several else ", a single seed"
    light = f" Every value is the mean of {2 * (window // 2) + 1} steps around it." if window > 1 else ""
    of = f" ({at.label})" if at.label else ""
    caption = f"Training step by step{of}{means}.{light}"
    size = (WIDE, 0.8 + 1.9 * -(-len(metrics) // 3))
    return finish(of_spot("curves", at), f"Training curves{of}", caption, numbers, size, draw, Marks(), "")


def _stacked(cells: Sequence[Cell], key: str) -> np.ndarray | None:
    """[seeds, steps] of one metric, NaN where there is no value; None where there is none at all."""
    rows = [[finite(v) for v in cell.curves.get(key, [])] for cell in cells]
    length = max((len(row) for row in rows), default=0)
    filled = [
        [np.nan if v is None else v for v in row] + [np.nan] * (length - len(row))
        for row in rows
        if any(v is not None for v in row)
    ]
    return np.array(filled) if filled else None


def smoothed(row: np.ndarray, window: int) -> np.ndarray:
    """Every value as the mean of its neighbours, half a window to each side; a gap stays one where nothing is
    near.
    """
    half = window // 2
    pieces = (row[max(0, i - half) : i + half + 1] for i in range(len(row)))
    return np.array([np.nanmean(p) if np.isfinite(p).any() else np.nan for p in pieces])


def _over_seeds(of: Any, rows: np.ndarray) -> np.ndarray:
    """A statistic over the seeds of every step, NaN where no seed has a value."""
    return np.array([of(column) if np.isfinite(column).any() else np.nan for column in rows.T])


def calibration_figures(results: Results) -> list[Figure]:
    """The student's confidence against the clean teacher's, agreement by entropy, and AUROC, where there is a
    token log.
    """
    made = []
    for at, lines in figures_of(results):
        logs = {name: [cell.tokens for cell in line.cells if cell.tokens] for name, line in lines.items()}
        if any(logs.values()):
            made.append(_calibration(at, lines, {name: found for name, found in logs.items() if found}))
    return made


def _calibration(at: Spot, lines: Lines, logs: dict[str, list[dict[str, Any]]]) -> Figure:
    numbers, marks = Numbers(), Marks()

    def curve(axes: Axes, name: str, bins: list[dict[str, float]], x: str, y: str, **style: Any) -> None:
        found = [(b[x], b[y]) for b in bins if x in b and y in b]
        if found:
            axes.plot(*zip(*found, strict=True), color=lines[name].colour, ms=3.2, lw=1.2, **style)

    def draw(sheet: Sheet) -> None:
        left, middle, right = sheet.subplots(1, 3)
        left.plot([0, 1], [0, 1], color=MUTED, lw=0.8, ls=":")
        for name, tokens in logs.items():
            spot, arm, *_ = lines[name]
            bins = pooled(tokens, "bins", ("student", "teacher", "agreement"))
            curve(left, name, bins, "student", "teacher", marker=lines[name].marker)
            curve(left, name, bins, "student", "agreement", ls="--")
            deciles = pooled(tokens, "by_entropy", ("low", "high", "agreement"))
            for one in deciles:
                one["middle"] = (one.get("low", 0.0) + one.get("high", 0.0)) / 2
            curve(middle, name, deciles, "middle", "agreement", marker=lines[name].marker)
            for place, (kind, group) in enumerate(
                [*(("bin", b) for b in bins), *(("entropy", b) for b in deciles)]
            ):
                number = place - (len(bins) if kind == "entropy" else 0)
                wanted = ("student", "teacher", "agreement") if kind == "bin" else ("middle", "agreement")
                numbers.extend(
                    (label(spot, arm, f"{kind} {number}", key), group[key]) for key in wanted if key in group
                )
        for row, (name, tokens) in enumerate(logs.items()):
            spot, arm, *_ = lines[name]
            found = spread([v for v in (finite(t.get("auroc")) for t in tokens) if v is not None])
            if found is None:
                continue
            only = next(t for t in tokens if finite(t.get("auroc")) is not None)
            low, high = (finite(only.get(f"auroc_{end}")) for end in ("low", "high"))
            if (
                found.seeds == 1 and low is not None and high is not None
            ):  # the interval over rollouts of the only run
                right.plot([low, high], [row, row], color=lines[name].colour, lw=0.9, marker="|", ms=5)
                numbers.extend(
                    [(label(spot, arm, "auroc", "low"), low), (label(spot, arm, "auroc", "high"), high)]
                )
            mean_point(right, found, row, lines[name].colour, lines[name].marker, 5, marks)
            right.annotate(
                f"{found.mean:.2f}",
                (found.mean, row),
                (0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
            numbers.extend(spread_numbers(found, spot, arm, "auroc"))
        left.set(
            xlim=(0, 1),
            ylim=(0, 1.02),
            xlabel="student's probability",
            ylabel="teacher's probability",
            title="sampled token",
        )
        middle.set(xlabel="student's entropy, nats", ylabel="share of tokens", title="teacher agrees")
        middle.margins(y=0.1)
        name_rows(right, list(logs))
        right.axvline(0.5, color=MUTED, lw=0.8, ls=":")
        right.margins(x=0.14)
        right.set(xlabel="AUROC", title="entropy finds disagreement")
        for axes in (left, middle, right):
            axes.grid(axis="x" if axes is right else "both")
        keys = [
            Line2D([], [], color=lines[name].colour, marker=lines[name].marker, ms=4, label=name)
            for name in logs
        ]
        legend(sheet, [*keys, Line2D([], [], color=MUTED, ls="--", label="teacher agrees, share")], 5)

    of = f" ({at.label})" if at.label else ""
    caption = (
        f"Tokens of middle turns{of}, runs of an arm pooled. Left: the teacher's mean probability of the sampled token against "
        "the student's, and the share of tokens the teacher agrees with (dashed). Middle: that share by the student's entropy. "
        "Right: AUROC of entropy for disagreement, 0.5 where entropy says nothing; whiskers are 95% intervals over seeds, or "
        "over rollouts where there is a single seed."
    )
    size = (WIDE, max(3.3, 1.5 + 0.32 * len(logs)))
    return finish(
        of_spot("calibration", at),
        f"Calibration of middle-turn tokens{of}",
        caption,
        numbers,
        size,
        draw,
        marks,
        "",
    )


def pooled(logs: Iterable[dict[str, Any]], name: str, keys: Sequence[str]) -> list[dict[str, float]]:
    """The bins of several runs as one, weighted by count.

    Bins of probability belong together by their ends. Those of entropy are quantiles of a run, of which the
    lowest may fall together, so they belong together by their place from the top.
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
    """How much of the tokens, the divergence and the gradient the mask drops, and the angle between the
    parts.
    """
    made = []
    for at, lines in figures_of(results):
        logs = {
            name: [cell.gradients for cell in line.cells if cell.gradients] for name, line in lines.items()
        }
        logs = {
            name: found
            for name, found in logs.items()
            if any(finite(g.get(key)) is not None for g in found for key in SHARES)
        }
        if logs:
            made.append(_gradients(at, lines, logs))
    return made


def _gradients(at: Spot, lines: Lines, logs: dict[str, list[dict[str, Any]]]) -> Figure:
    numbers, marks = Numbers(), Marks()
    shares = [
        key for key in SHARES if any(finite(g.get(key)) is not None for group in logs.values() for g in group)
    ]
    angle = any(finite(g.get("cosine")) is not None for group in logs.values() for g in group)

    def values(name: str, key: str) -> list[float]:
        return [v for v in (finite(g.get(key)) for g in logs[name]) if v is not None]

    def share(axes: Axes, key: str) -> None:
        for row, name in enumerate(logs):
            spot, arm, *_ = lines[name]
            found = spread(values(name, key))
            if found is None:
                continue
            dropped, kept = 100 * found.mean, 100 - 100 * found.mean
            axes.barh(row, kept, 0.62, color=lines[name].colour, lw=0)
            axes.barh(
                row,
                dropped,
                0.62,
                left=kept,
                facecolor=tint(lines[name].colour, 0.75),
                edgecolor=lines[name].colour,
                lw=0,
                hatch="////",
            )
            axes.annotate(
                f"{dropped:.0f}", (100, row), (3, 0), textcoords="offset points", va="center", fontsize=7
            )
            numbers.append((label(spot, arm, key), dropped))
        axes.set(xlim=(0, 113), xticks=(0, 50, 100), xlabel="%", title=SHARES[key])

    def draw(sheet: Sheet) -> None:
        panels = grid(sheet, len(shares) + angle, 4, sharey=True)
        for axes, key in zip(panels, shares, strict=False):
            share(axes, key)
        if angle:
            panels[-1].axvline(0, color=MUTED, lw=0.8)
            for row, name in enumerate(logs):
                spot, arm, *_ = lines[name]
                found = spread(values(name, "cosine"))
                if found is not None:
                    mean_point(panels[-1], found, row, lines[name].colour, "o", 5, marks)
                    numbers.extend(spread_numbers(found, spot, arm, "cosine"))
            panels[-1].set(
                xlim=(-1.05, 1.05), xticks=(-1, 0, 1), xlabel="cosine", title="kept and dropped part"
            )
            panels[-1].grid(axis="x")
        for axes in panels:
            name_rows(axes, list(logs))
        dropped = Patch(
            facecolor=tint(MUTED, 0.75),
            edgecolor=MUTED,
            hatch="////",
            lw=0,
            label="dropped (the number, in %)",
        )
        legend(sheet, [Patch(facecolor=MUTED, lw=0, label="kept"), dropped, *marks.keys("o")])

    of = f" ({at.label})" if at.label else ""
    caption = (
        f"What the mask drops of the middle turns{of}, mean over seeds: share of tokens, of their divergence, and of the "
        "summed norms of both parts' gradients; for an arm without a mask, what the paper's would drop."
        + (" Right: the cosine of the angle between the two parts' gradients." if angle else "")
    )
    size = (WIDE, max(2.3, 1.2 + 0.36 * len(logs)))
    return finish(of_spot("gradients", at), f"What the mask drops{of}", caption, numbers, size, draw, marks)

"""`run.plot()`: one figure of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from smopd.runs.run import Run

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # safe for colour blindness


def plot(run: "Run", path: str | Path | None = None) -> "Figure":
    from matplotlib.figure import Figure

    evaluations = run.evaluations
    figure = Figure(figsize=(10 if evaluations else 6, 3.6), layout="constrained")
    parts: Any = figure.subplots(1, 2 if evaluations else 1, squeeze=False)[0]
    rows = run.steps
    steps = [row["step"] for row in rows]
    training, right = parts[0], parts[0].twinx()
    training.plot(steps, [row["loss"] for row in rows], color=COLOURS[0], label="loss")
    outcomes = [row.get("outcome") for row in rows]
    right.plot(steps, outcomes, color=COLOURS[1], ls="--", label="correct answers")
    for view, colour in (("sharded", COLOURS[2]), ("full", COLOURS[3])):
        measured = [(row["step"], row["value"]) for row in run.training_evaluations if row["metric"] == view]
        if measured:
            right.plot(*zip(*measured, strict=True), "o", color=colour, label=f"evaluated, {view.upper()}")
    right.set_ylim(-0.02, 1.02)
    training.set(xlabel="step", ylabel="loss", title=run.path.name)
    right.set_ylabel("share correct")
    lines = [*training.get_lines(), *right.get_lines()]
    training.legend(lines, [str(line.get_label()) for line in lines], fontsize="small")
    if evaluations:
        _accuracies(parts[1], evaluations)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _accuracies(axes: Any, evaluations: list[Any]) -> None:
    views = list(dict.fromkeys(view for evaluation in evaluations for view in evaluation))
    width = 0.8 / len(evaluations)
    for number, evaluation in enumerate(evaluations):
        shown = [(place, evaluation[view]) for place, view in enumerate(views) if view in evaluation]
        heights = [view["accuracy"] for _, view in shown]
        below = [max(0.0, view["accuracy"] - view["low"]) for _, view in shown]
        above = [max(0.0, view["high"] - view["accuracy"]) for _, view in shown]
        places = [place + number * width for place, _ in shown]
        look = {"color": COLOURS[number % len(COLOURS)], "label": evaluation.path.name, "capsize": 3}
        axes.bar(places, heights, width, yerr=(below, above), **look)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(views))], [v.upper() for v in views])
    axes.set(ylim=(0, 1.05), ylabel="accuracy, 95% interval")
    axes.legend(fontsize="small")

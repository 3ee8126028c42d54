"""Watch a run in a terminal. It only reads the run folder, so it can run anywhere and stop at any time."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from smopd.formatting import cut, visible
from smopd.runs import Run
from smopd.viewer.pages.conversations import Part, Shown, rollouts_of
from smopd.viewer.pages.runs import read_run

CURVES = ("loss", "outcome", "delta", "weight", "kept", "clipped", "entropy", "divergence", "grad_norm")
RECENT = 10  # steps from which the time left is estimated
LEVELS = (0.005, 0.03, 0.12, 0.5)  # divergences, in nats, at which the shade gets darker
RAMP = ("", "white on #203548", "white on #264b69", "white on #29567a", "white on #2f6c9c")
LONGEST = 2000  # characters of a message shown


def status(run: Path, run_data: dict[str, Any] | None = None) -> dict[str, Any]:
    """The progress of a run in numbers; `run_data`: the result of `read_run`, if already known."""
    run_data = run_data or read_run(run)
    columns = (run_data["metrics"].get(name, []) for name in ("seconds/step", "tokens/sampled"))
    seconds, sampled = ([n for n in column if n is not None][-RECENT:] for column in columns)
    each = sum(seconds) / len(seconds) if seconds else None
    left = max(0, run_data["steps"] - run_data["done"])
    return {
        "run": run_data["name"], "model": run_data["model"], "method": run_data["method"],
        "step": run_data["done"], "steps": run_data["steps"], "working": Run(run).working,
        "seconds_a_step": each, "seconds_left": each * left if each is not None else None,
        "tokens_a_second": sum(sampled) / sum(seconds) if seconds and sum(seconds) else None,
        "last": {name: values[-1] for name, values in run_data["metrics"].items() if values},
        "evaluations": run_data["evaluations"], "warnings": [w["message"] for w in run_data["warnings"]],
    }  # fmt: skip


def frame(run: Path, width: int) -> RenderableType:
    run_data = read_run(run)
    now = status(run, run_data)
    heading = Text(visible(f"{now['run']}: {now['model']}, {now['method']}"), style="bold")
    parts: list[RenderableType] = [heading, _progress(now, width), _curves(run_data, width)]
    parts += [Text(visible(cut(f"warning: {line}", 300)), style="yellow") for line in now["warnings"][-3:]]
    shown = next((s for file in Run(run).rollout_files[-1:] for s in rollouts_of(run, file)), None)
    return Group(*parts, *(_conversation(shown) if shown else [Text("no conversation yet", style="dim")]))


def _progress(now: dict[str, Any], width: int) -> RenderableType:
    step, steps, left = now["step"], now["steps"], now["seconds_left"]
    facts = [f"step {step}/{steps}"]
    facts += [f"{each:.1f} s/step"] if (each := now["seconds_a_step"]) is not None else []
    facts += [f"{rate:.0f} tokens/s"] if (rate := now["tokens_a_second"]) is not None else []
    facts += [f"ETA {timedelta(seconds=round(left))}"] if step < steps and left is not None else []
    facts += ["finished"] if step >= steps else [] if now["working"] else ["nobody works on it"]
    bar = ProgressBar(total=max(1, steps), completed=step, width=min(30, max(10, width // 3)))
    line = Table.grid(padding=(0, 2))
    line.add_row(bar, Text("  ".join(facts)))
    return line


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Draw the values in at most `width` columns, each the mean of its part; a gap if there are none."""
    drawn, column = "", np.array(values, dtype=float)  # None becomes NaN
    if np.isnan(column).all():
        return ""
    low, high = np.nanmin(column), np.nanmax(column)
    for share in np.array_split(column, min(width, len(values))):
        some = share[~np.isnan(share)]
        level = (some.mean() - low) / (high - low) if len(some) and high > low else 0.0
        drawn += "▁▂▃▄▅▆▇█"[min(7, int(level * 8))] if len(some) else " "
    return drawn


def _curves(run_data: dict[str, Any], width: int) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    series = {name: values for name, values in run_data["metrics"].items() if name.split("/")[0] in CURVES}
    for row in run_data["evaluations"]:
        series.setdefault(f"eval {row['metric']}", []).append(row["value"])
    order = {name: place for place, name in enumerate(CURVES)}  # evaluations come before them
    for name in sorted(series, key=lambda name: (order.get(name.split("/")[0], -1), "/" in name))[:12]:
        if known := [v for v in series[name] if v is not None]:
            line = sparkline(series[name], max(10, width - 45))
            ends = f"{known[0]:.3g} → {known[-1]:.3g}"
            table.add_row(Text(visible(name), style="dim"), Text(line), Text(ends))
    return table


def _conversation(shown: Shown) -> list[RenderableType]:
    verdict = {True: "correct", False: "wrong", None: "not judged"}[shown.verdict]
    title = Text(visible(f"step {shown.number}, {shown.id}, {shown.view.upper()}: {verdict}")[:200])
    lines: list[RenderableType] = [Rule(title, align="left", style="dim")]
    for number, turn in enumerate(shown.turns):
        user, reply = (visible(cut(turn[name], LONGEST)) for name in ("user", "reply"))
        lines.append(Text(user, style="cyan", overflow="fold"))
        parts = shown.parts.get(number)
        lines.append(_tokens(parts[0], shown) if parts else Text(reply, overflow="fold"))
    if shown.parts:
        legend = "shade: divergence of student and teacher; underlined: dropped; bold: clipped"
        lines.append(Text(legend, style="dim"))
    return lines


def _tokens(part: Part, shown: Shown) -> Text:
    line, values = Text(overflow="fold"), part.values
    for i, token in enumerate(values["token"].tolist()[:LONGEST]):
        level = sum(float(values["divergence"][i]) >= bound for bound in LEVELS)
        look = [RAMP[level], "" if values["kept"][i] else "underline", "bold" if values["clipped"][i] else ""]
        line.append(visible(shown.pieces.get(token, "\ufffd"))[:200], " ".join(filter(None, look)) or None)
    return line

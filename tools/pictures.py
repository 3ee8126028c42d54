"""Draws the two pictures of the README (`make docs`):

    python tools/pictures.py docs/evidence/miniature.json docs/pictures

step.svg shows one training step; its entropies are made up. result.svg shows the accuracies of the committed
study. Each file carries its colours for light and for dark and its own background, and its text is drawn as
outlines: no page has to bring a font or a style. The same input gives the same bytes.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from smopd.files import write_text
from smopd.objective import keep_mask
from smopd.pages import style_sheet
from smopd.study.results import Results, load_results
from smopd.study.statistics import mean_sd
from smopd.study.table_parts import hundred
from smopd.svg import styled, svg_text

# What stands in a drawing for a colour of the page.
NAMES = ("--paper", "--ink", "--muted", "--rule", "--tint", "--quiet", "--c0", "--c1", "--c2", "--c3")
COLOURS = {name: f"#{i:06x}" for i, name in enumerate(NAMES, 0xDEF000)}
PAPER, INK, MUTED, RULE, TINT, QUIET, BLUE, ORANGE, GREEN, VIOLET = COLOURS.values()
LOOK: dict[str, Any] = {
    "svg.hashsalt": "smopd", "svg.fonttype": "path", "text.parse_math": False, "figure.dpi": 72,
    "font.family": ["DejaVu Sans"], "font.size": 11.5, "text.color": INK,
}  # fmt: skip
ENTROPY = (0.3, 0.9, 1.6, 0.55, 0.75, 0.35, 1.2, 0.6, 1.85, 0.65)  # nats, made up


def picture(title: str, width: float, height: float, draw: Callable[[Axes], None]) -> str:
    """An SVG of so many points; `draw` gets axes whose unit is the point, y downwards."""
    with styled(LOOK):
        sheet = Figure(figsize=(width / 72, height / 72), frameon=False)
        axes = sheet.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        rounded(axes, 1, 1, width - 2, height - 2, PAPER, RULE, 8)
        draw(axes)
        svg = svg_text(sheet, title)
    colours = style_sheet().partition("\n* {")[0]  # the colour definitions of the page
    light = dict(re.findall(r"(--\w+): (#\w+)", colours.partition("@media")[0]))
    for name, stand_in in COLOURS.items():  # the plain colour is for programs that know no variables
        svg = re.sub(rf"(\w+): {stand_in}", rf"\1: {light[name]}; \1: var({name})", svg)
    svg = re.sub(r' d="[^"]*"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), svg)
    return svg.replace("<defs>", f"<style>{colours}</style>\n <defs>", 1)


def rounded(
    axes: Axes, x: float, y: float, width: float, height: float, fill: str, edge: str, round_: float = 5,
    front: float = 1,
) -> None:  # fmt: skip
    """A box with round corners."""
    shape = f"round,pad=0,rounding_size={round_}"
    box = FancyBboxPatch((x, y), width, height, shape, facecolor=fill, edgecolor=edge, linewidth=1.2)
    axes.add_patch(box).set_zorder(front)


def chip(axes: Axes, x: float, y: float, text: str, edge: str, width: float = 34, fill: str = TINT) -> float:
    """A message as a small box; where the next one begins."""
    rounded(axes, x, y, width, 24, fill, edge)
    axes.text(x + width / 2, y + 12.5, text, ha="center", va="center", size=11)
    return x + width + 6


def heading(axes: Axes, y: float, title: str, note: str) -> None:
    """The title of a band of the picture, and a sentence below it."""
    axes.text(22, y, title, weight="bold", size=13, va="center")
    axes.text(22, y + 18, note, color=MUTED, size=10.5, va="center")


def rule(axes: Axes, y: float) -> None:
    """A line between two bands."""
    axes.plot([22, 858], [y, y], color=RULE, lw=1)


def step_picture() -> str:
    """One training step: play, score twice, make one number, update."""

    def draw(axes: Axes) -> None:
        heading(
            axes, 26, "1  Play", "The student answers every message; its own replies stay in the history."
        )
        draw_conversation(axes)
        rule(axes, 134)
        twice = "The student under what it saw (dirty); the teacher, a slow average of the student, "
        heading(axes, 154, "2  Score the same reply tokens twice", f"{twice}under a clean context.")
        draw_contexts(axes)
        rule(axes, 266)
        cost = "Per token a divergence between the two, capped at 0.5 nats."
        heading(axes, 286, "3  Make one number of it", cost)
        draw_loss(axes)
        rule(axes, 422)
        average = "teacher = 0.99 · teacher + 0.01 · student.  Nothing is added at inference."
        heading(axes, 442, "4  Update", f"AdamW moves the student's LoRA adapter; then  {average}")

    return picture("One training step", 880, 478, draw)


def draw_conversation(axes: Axes) -> None:
    """Three messages of a user, each with the student's reply below it."""
    messages = [
        ("u1", "How many pears does Ben have?"), ("a1", "say 5. The answer is 5."),
        ("u2", "In the evening 3 arrive."), ("a2", "so 5, 3 more: 8."),
        ("u3", "Wait, Ben starts with 3."), ("a3", "so 8. The answer is 8."),
    ]  # fmt: skip
    for i, (name, text) in enumerate(messages):
        x, y = 22 + 284 * (i // 2), 58 + 32 * (i % 2)
        chip(axes, x, y, name, MUTED if name[0] == "u" else ORANGE)
        axes.text(x + 42, y + 12.5, text, va="center", size=11, color=INK)


def draw_contexts(axes: Axes) -> None:
    """What each model sees before a middle reply and before the answer."""
    rows = [
        ("a middle reply", "a2", ["u1", "a1", "u2"], ["u1", "u2"]),
        ("the answer", "a3", ["u1", "a1", "u2", "a2", "u3"], ["FULL"]),
    ]
    for i, (what, scored, dirty, clean) in enumerate(rows):
        y = 190 + 34 * i
        axes.text(22, y + 12.5, what, va="center", size=11)
        for left, who, colour, context in ((140, "student", BLUE, dirty), (520, "teacher", VIOLET, clean)):
            axes.text(left, y + 12.5, who, va="center", size=11, color=colour)
            x: float = left + 66
            for name in context:
                text, wide = ("FULL: the whole task", 150) if name == "FULL" else (name, 34)
                x = chip(axes, x, y, text, ORANGE if name[0] == "a" else MUTED, wide)
            axes.text(x + 6, y + 12.5, "▸", va="center", ha="center", size=12, color=MUTED)
            chip(axes, x + 16, y, scored, colour, 34, PAPER)


def draw_loss(axes: Axes) -> None:
    """The tokens of a middle reply with those that the mask drops, and what each part of the loss is."""
    kept = keep_mask(torch.tensor(ENTROPY), 0.8).tolist()
    for i, (value, stays) in enumerate(zip(ENTROPY, kept, strict=True)):
        x, high = 24 + 25 * i, 30 * value
        axes.add_patch(FancyBboxPatch(
            (x, 390 - high), 17, high, "square,pad=0", facecolor=BLUE if stays else PAPER,
            edgecolor=BLUE if stays else QUIET, linewidth=1.2, linestyle="-" if stays else (0, (2, 2)),
        ))  # fmt: skip
    axes.plot([20, 274], [390, 390], color=MUTED, lw=1)
    axes.text(22, 404, "tokens of a2 by the student's entropy", size=10.5, color=MUTED, va="center")
    lines = [
        ("middle replies", "Jensen-Shannon, over the tokens that the mask keeps"),
        ("", "(dashed: dropped), times a weight: less where the two disagree"),
        ("answer", "reverse KL, every token"),
        ("FULL branch", "reverse KL on a reply to the whole task, with probability 0.2"),
    ]
    for i, (part, text) in enumerate(lines):
        axes.text(310, 326 + 23 * i, part, size=11, weight="bold", va="center")
        axes.text(430, 326 + 23 * i, text, size=11, va="center")


def result_picture(results: Results, arm: str = "entropy") -> str:
    """Accuracies of the base model and of an arm's runs, a dot a seed."""
    (base,), cells = results.base, results.group(results.models[0], arm)

    def draw(axes: Axes) -> None:
        left, wide = 200.0, 500.0
        for tick in range(0, 101, 25):
            x = left + wide * tick / 100
            axes.plot([x, x], [52, 184], color=RULE, lw=1)
            axes.text(x, 196, f"{tick}%", ha="center", va="center", size=10.5, color=MUTED)
        axes.text(22, 26, "The pocket model, before and after 40 steps", weight="bold", size=13, va="center")
        for i, view in enumerate(("full", "sharded")):
            y = 58 + 68 * i
            caption = {"full": "the task in one message", "sharded": "the same task, bit by bit"}[view]
            axes.text(22, y + 18, view.upper(), weight="bold", size=12, va="center")
            axes.text(22, y + 36, caption, size=10.5, color=MUTED, va="center")
            before, after = results.accuracy(base, view), [results.accuracy(c, view) for c in cells]
            mean, sd = mean_sd(after)
            bars = [
                (before, QUIET, f"{hundred(before)}% before"),
                (mean, BLUE, f"{hundred(mean)}% ± {hundred(sd)} after"),
            ]
            for rank, (value, colour, text) in enumerate(bars):
                top = y + 4 + 25 * rank
                rounded(axes, left, top, wide * value, 20, colour, colour, 2, front=3)
                axes.text(left + wide + 16, top + 10.5, text, va="center", size=11.5)
            places = [left + wide * value for value in after]
            axes.scatter(
                places, [y + 39] * len(places), 14, c=PAPER, edgecolors=INK, linewidths=0.8, zorder=4
            )
        axes.text(22, 220, f"{len(results.items)} held-out conversations; after: mean and standard deviation "
                  f"of {len(cells)} runs (dots), method {arm}. Study: {results.name}.",
                  size=10.5, color=MUTED, va="center")  # fmt: skip

    return picture("Accuracy before and after training", 880, 240, draw)


def pictures(results: Path) -> dict[str, str]:
    """File name -> SVG."""
    return {"step.svg": step_picture(), "result.svg": result_picture(load_results(results))}


if __name__ == "__main__":
    for name, svg in pictures(Path(sys.argv[1])).items():
        write_text(Path(sys.argv[2]) / name, svg)

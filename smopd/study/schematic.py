"""The method in one drawing: the student's rollout, the teacher's clean contexts, the entropy mask, and the
two updates.

It leaves out the formulas, which docs/method.md has, and everything that depends on a run: it is the same in
every report.
"""

from functools import cache
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.patches import FancyBboxPatch, Rectangle

from smopd.study.drawing import ARM_COLOURS, INK, MUTED, Figure, render, tint

SIZE = (9.0, 5.3)
STUDENT, TEACHER, USER = "#d55e00", ARM_COLOURS["entropy"], "#e8ebee"
# Entropies of the tokens of one middle reply, made up; the lowest two of ten are what a mask of 80% drops.
ENTROPIES = (0.9, 0.35, 0.6, 0.08, 0.75, 0.5, 1.0, 0.12, 0.45, 0.7)
DROPPED = 2
ROWS = {"student": 48.0, "teacher": 34.0, "loss": 19.5, "update": 3.0}
CAPTION = (
    "One training step. The student plays the conversation with its own replies a in the history; the teacher, a slow average "
    "of the student, scores the same tokens under a clean context: the user's turns u alone for a middle reply, the whole task f "
    "for the answer. Of a middle reply the tokens of lowest student entropy are dropped from the Jensen-Shannon loss; the answer "
    "and the FULL branch use reverse KL on every token. The entropies are made up for the drawing."
)


@cache
def schematic() -> Figure:
    """The drawing as a figure; it shows no number of a study."""
    return render("schematic", "One training step", CAPTION, [], SIZE, draw_schematic, arranged=False)


def draw_schematic(sheet: Sheet) -> None:
    """Fill a sheet of `SIZE`."""
    axes = sheet.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 102), ylim=(0, 60))
    axes.axis("off")
    _student(axes)
    _teacher(axes)
    _losses(axes)
    _updates(axes)


def _box(
    axes: Axes, x: float, y: float, text: str, colour: str = USER, width: float = 6.0, height: float = 5.0, edge: str = MUTED,
    dashed: bool = False,
) -> None:  # fmt: skip
    """A rounded box with its lower left corner at (x, y)."""
    shape = FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.8", fc=colour, ec=edge, lw=0.9
    )
    shape.set_linestyle("--" if dashed else "-")
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9.5, linespacing=1.25)


def _turn(
    axes: Axes,
    x: float,
    y: float,
    letter: str,
    index: str,
    colour: str = USER,
    edge: str = MUTED,
    dashed: bool = False,
) -> None:
    """A box with the letter of a turn and its index below the line.

    Two texts, not a formula: matplotlib keeps parsed formulas with the settings of whoever drew them first in
    this process.
    """
    _box(axes, x, y, "", colour, edge=edge, dashed=dashed)
    axes.text(
        x + (3.25 if index else 3),
        y + 2.6,
        letter,
        ha="right" if index else "center",
        va="center_baseline",
        fontsize=9.5,
    )
    if index:
        axes.text(x + 3.35, y + 1.9, index, ha="left", va="center_baseline", fontsize=6.5)


def _note(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    size: float = 8.0,
    side: Literal["left", "center", "right"] = "center",
) -> None:
    axes.text(x, y, text, ha=side, va="center", fontsize=size, color=MUTED, linespacing=1.3)


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = MUTED,
    dashed: bool = False,
) -> None:
    style = {
        "arrowstyle": "-|>",
        "color": colour,
        "lw": 1.1,
        "shrinkA": 0,
        "shrinkB": 0,
        "mutation_scale": 9,
        "ls": "--" if dashed else "-",
    }
    axes.annotate("", end, start, arrowprops=style)


def _student(axes: Axes) -> None:
    y, reply = ROWS["student"], tint(STUDENT, 0.7)
    _box(axes, 4, y - 1, "student\n(adapter)", tint(STUDENT, 0.55), 13, 7, STUDENT)
    for x, letter, index in ((22, "u", "1"), (36, "u", "2"), (57, "u", "T"), (84, "f", "")):
        _turn(axes, x, y, letter, index)
    for x, index in ((29, "1"), (43, "2"), (64, "T"), (91, "f")):
        _turn(axes, x, y, "a", index, reply, STUDENT)
    _note(axes, 53, y + 2.5, "· · ·", 11)
    _note(axes, 46, y + 8, "dirty history: every reply is sampled and stays in the context")
    _note(axes, 90.5, y + 8, "FULL branch, probability 0.2")
    _arrow(axes, (17.4, y + 2.5), (21.6, y + 2.5), STUDENT)


def _teacher(axes: Axes) -> None:
    y, same = ROWS["teacher"], tint(TEACHER, 0.75)
    _box(axes, 4, y - 1, "EMA\nteacher", tint(TEACHER, 0.55), 13, 7, TEACHER)
    for x, letter, index in ((29, "u", "1"), (36, "u", "2"), (57, "f", ""), (84, "f", "")):
        _turn(axes, x, y, letter, index)
    for x, index in ((43, "2"), (64, "T"), (91, "f")):
        _turn(axes, x, y, "a", index, same, TEACHER, dashed=True)
        _arrow(axes, (x + 3, ROWS["student"] - 0.4), (x + 3, y + 5.4), dashed=True)
    _note(axes, 35.5, y + 9.3, "same tokens,\nscored again", side="center")
    _note(axes, 35.5, y - 2.6, "the user's turns alone")
    _note(axes, 60, y - 2.6, "the whole task")
    _arrow(axes, (17.4, y + 2.5), (28.4, y + 2.5), TEACHER)


def _losses(axes: Axes) -> None:
    y = ROWS["loss"]
    lowest = sorted(range(len(ENTROPIES)), key=lambda i: ENTROPIES[i])[:DROPPED]
    for left, count, masked in ((28.0, len(ENTROPIES), True), (60.0, 6, False), (86.0, 6, False)):
        for i in range(count):
            gone = masked and i in lowest
            x, height = left + 2.2 * i, 1.2 + 5.3 * (ENTROPIES[i] if masked else 0.35)
            fill = "white" if gone else tint(TEACHER, 0.35)
            bar = Rectangle(
                (x, y),
                1.8,
                height,
                fc=fill,
                ec=MUTED if gone else TEACHER,
                lw=0.8,
                hatch="//////" if gone else "",
            )
            axes.add_patch(bar)
        axes.plot([left - 0.4, left + 2.2 * count], [y, y], color=MUTED, lw=0.8)
    for x, top in ((46, 8.3), (67, 4.6), (94, 4.6)):
        _arrow(axes, (x, ROWS["teacher"] - 0.4), (x, y + top))
    _note(axes, 26.5, y + 3, "entropy of\neach token", side="right")
    _note(axes, 39, y - 3.4, "middle turns: Jensen-Shannon,\nlowest-entropy 20% masked")
    _note(axes, 66.5, y - 3.4, "answer: reverse KL,\nevery token")
    _note(axes, 92.5, y - 3.4, "FULL: reverse KL,\nevery token")


def _updates(axes: Axes) -> None:
    y = ROWS["update"]
    for x in (39, 66.5, 92.5):
        _arrow(axes, (x, ROWS["loss"] - 5.9), (x, y + 5.4))
    _box(
        axes,
        25,
        y,
        "loss: each token's divergence capped at 0.5, middle turns weighted by reliability",
        "white",
        74,
        5,
    )
    _box(axes, 4, y, "optimizer", "white", 13, 5, INK)
    _arrow(axes, (24.6, y + 2.5), (17.4, y + 2.5), INK)
    # The step goes around the teacher: no gradient reaches it.
    axes.plot(
        [4, 1.6, 1.6], [y + 2.5, y + 2.5, ROWS["student"] + 2.5], color=INK, lw=1.1, solid_joinstyle="miter"
    )
    _arrow(axes, (1.6, ROWS["student"] + 2.5), (3.6, ROWS["student"] + 2.5), INK)
    _note(axes, 2.6, ROWS["loss"] + 3, "gradient step", side="left")
    _arrow(axes, (10.5, ROWS["student"] - 1.4), (10.5, ROWS["teacher"] + 6.4), TEACHER)
    _note(
        axes, 11.5, (ROWS["student"] + ROWS["teacher"] + 5) / 2, "moving average,\n0.99 a step", side="left"
    )

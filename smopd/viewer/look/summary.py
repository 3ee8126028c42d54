"""What improved and why, for somebody who has a minute: what was trained on what, what got better, what got
worse, three conversations that show it.

A change counts as clear where its p, corrected after Holm for every row of the table, is below 0.05. A loss
is flagged as possible where its own p is: a false alarm costs a look, a loss that nobody saw costs more.
"""

from collections.abc import Callable, Sequence
from typing import Any

from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import accuracy, against, scores
from smopd.formatting import percent, points
from smopd.methods import find_method
from smopd.study.statistics import holm
from smopd.viewer.look.runs import Source

NAMES = {
    "sharded": "Tasks told over several messages", "full": "Tasks told in one message",
    "concat": "All messages put into one", "recap": "Several messages and a recap",
    "snowball": "Messages repeated as they come", "simulated": "A model plays the user",
}  # fmt: skip
WORDS = {
    "better": "clearly better", "worse": "clearly worse", "perhaps": "perhaps worse",
    "unclear": "no clear change",
}  # fmt: skip
DISTILLED = (
    "The model played conversations itself, with its own replies in the history. A slow copy of it read the "
    "same replies with a clean view of the task, without those earlier replies, and the model was moved "
    "towards what the copy would have said. No labels and no larger model were needed."
)


def improved(
    run: dict[str, Any], before: Source, after: Source, old: Sequence[Outcome], new: Sequence[Outcome]
) -> dict[str, Any]:
    """The page of one run: its untrained and its trained model on the same tasks."""
    rows = _changes(old, new)
    adjusted = holm([row["p"] for row in rows])
    for row, p in zip(rows, adjusted, strict=True):
        up = row["difference"] > 0
        row["clear"] = ("better" if up else "worse") if p < 0.05 else "unclear"
        if not up and row["clear"] == "unclear" and row["p"] < 0.05:
            row["clear"] = "perhaps"
    return {
        "run": run["name"],
        "before": before.name,
        "after": after.name,
        "trained": f"{run['model']} was trained with the method {run['method']} for {run['done']} steps on "
        f"{run['data']}, {run['rollouts']} conversations a step.",
        "sentence": _sentence(rows),
        "rows": rows,
        "facts": [*_facts(old, new), *_training(run)],
        "how": _how(run["method"]),
        "examples": _examples(old, new),
    }


def _changes(old: Sequence[Outcome], new: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Every view as a whole, then by task and by number of messages, where there are several."""
    rows = []
    views = [v for v in dict.fromkeys(o.view for o in old) if any(o.view == v for o in new)]
    for view in sorted(views, key=lambda v: v != "sharded"):
        pair = [o for o in old if o.view == view], [o for o in new if o.view == view]
        name = NAMES.get(view, view)
        rows.append(_row(name, view, {}, *pair))
        rows += _split(name, view, "task", lambda o: o.task, *pair)
        if view != "full":
            rows += _split(name, view, "shards", lambda o: o.shards, *pair)
    return [row for row in rows if row["n"]]


def _split(
    name: str, view: str, by: str, of: Callable[[Outcome], Any], old: list[Outcome], new: list[Outcome]
) -> list[dict[str, Any]]:
    values = sorted({of(o) for o in old})
    words = {value: f"{value} messages" if by == "shards" else str(value) for value in values}
    return [
        _row(f"{name}: {words[v]}", view, {by: v}, *([o for o in some if of(o) == v] for some in (old, new)))
        for v in (values if len(values) > 1 else [])
    ]


def _row(
    what: str, view: str, only: dict[str, Any], old: list[Outcome], new: list[Outcome]
) -> dict[str, Any]:
    change = against(old, new)
    told = ("n", "gained", "lost", "difference", "low", "high", "p")
    sides = [accuracy(scores(some))["accuracy"] for some in (old, new)]
    return {
        "what": what, "view": view, "only": only, "before": sides[0], "after": sides[1],
        **{name: change[name] for name in told},
    }  # fmt: skip


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    """The whole in a sentence or two."""
    said = []
    for row in rows:
        if not row["only"]:
            moved = f"{percent(row['before'])} right before, {percent(row['after'])} after"
            said.append(
                f"{row['what']}: {moved} ({WORDS[row['clear']]}, {points(row['difference'])} points)."
            )
    return " ".join(said)


def _facts(old: Sequence[Outcome], new: Sequence[Outcome]) -> list[str]:
    """What else changed in the replies."""

    def told(some: Sequence[Outcome]) -> tuple[float, float, float]:
        turns = [turn for o in some for turn in o.turns]
        cut = sum(turn["stop"] == "length" for turn in turns)
        silent = sum(o.status == "no_answer" for o in some)
        tokens = sum(turn["tokens"] or 0 for turn in turns)
        return tokens / max(1, len(turns)), cut / max(1, len(turns)), silent / max(1, len(some))

    a, b = told(old), told(new)
    return [
        f"A reply had {a[0]:.1f} tokens on average before, {b[0]:.1f} after.",
        f"Replies cut at the token limit: {percent(a[1])} before, {percent(b[1])} after.",
        f"Conversations without an answer at the end: {percent(a[2])} before, {percent(b[2])} after.",
    ]


def _training(run: dict[str, Any]) -> list[str]:
    """What the training itself saw, from its first and last tenth."""
    words = {
        "outcome": ("Right final answers while training", percent),
        "delta": ("Distance between model and copy, nats a token", lambda v: f"{v:.3f}"),
    }
    said = []
    for name, (what, shown) in words.items():
        values = [v for v in run["metrics"].get(name, []) if v is not None]
        tenth = max(1, len(values) // 10)
        if len(values) > 1:
            first, last = sum(values[:tenth]) / tenth, sum(values[-tenth:]) / tenth
            said.append(f"{what}: {shown(first)} in the first steps, {shown(last)} in the last.")
    return said


def _examples(old: Sequence[Outcome], new: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Two that were mended, of two tasks if it can be, and one that was lost, or is still wrong."""
    view = "sharded" if any(o.view == "sharded" for o in new) else (new[0].view if new else "")
    was, now = ({o.id: o for o in some if o.view == view and not o.run} for some in (old, new))
    shared = [i for i in was if i in now]
    mended = [i for i in shared if now[i].correct and not was[i].correct]
    lost = [i for i in shared if was[i].correct and not now[i].correct]
    wrong = [i for i in shared if not was[i].correct and not now[i].correct]
    first_of_task = list({was[i].task: i for i in reversed(mended)}.values())
    chosen = [(i, "Wrong before, right after.") for i in dict.fromkeys([*first_of_task, *mended])][:2]
    chosen += [(i, "Right before, wrong after: it got worse.") for i in lost[:1]]
    chosen += [(i, "Still wrong.") for i in wrong[: 3 - len(chosen)]]
    chosen += [(i, "Right before and after.") for i in shared if i not in dict(chosen)][: 3 - len(chosen)]
    return [
        {"id": i, "view": view, "task": was[i].task, "why": why, "user": was[i].turns[-1]["user"],
         "before": was[i].turns[-1]["reply"], "after": now[i].turns[-1]["reply"],
         "was": was[i].correct, "now": now[i].correct}
        for i, why in chosen
    ]  # fmt: skip


def _how(name: str) -> str:
    """What training did, in plain words: for a method without a teacher, what its declaration says."""
    try:
        method = find_method(name)
    except ValueError:  # a file of somebody's that is not here
        return DISTILLED
    return method.summary if method.group == "baselines" else DISTILLED

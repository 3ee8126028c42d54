"""A one-minute summary: what was trained, what got better or worse, three conversations that show it.

A change is clear if its interval excludes 0. Views as a whole are comparisons planned in advance, with their
own 95% intervals. Their parts, by task and by number of turns, are looked at together, so their intervals are
Bonferroni-corrected. A part's loss is flagged as possible if its plain 95% interval is below 0: a false alarm
costs less than an unseen loss.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import accuracy, against, scores
from smopd.evaluation.statistics import LEVEL
from smopd.evaluation.store import load_identity
from smopd.formatting import percent, points
from smopd.methods import find_method
from smopd.viewer.pages.runs import ConversationSource
from smopd.viewer.report import first_and_last, notices

NAMES = {
    "sharded": "Tasks told over several turns", "full": "Tasks told in one turn",
    "concat": "All turns put into one", "recap": "Several turns and a recap",
    "snowball": "Turns that repeat the earlier ones", "simulated": "A model plays the user",
}  # fmt: skip
WORDS = {
    "better": "clearly better", "worse": "clearly worse", "perhaps": "perhaps worse",
    "unclear": "no clear change",
}  # fmt: skip
Compared = tuple[str, str, dict[str, Any], list[Outcome], list[Outcome]]  # what, view, only, before, after
DISTILLED = (
    "The model played conversations itself, with its own replies in the history. A slow copy of it read the "
    "same replies with a clean view of the task, without those earlier replies, and the model was moved "
    "towards what the copy would have said. No labels and no larger model were needed."
)


def improved(
    run: dict[str, Any], after: ConversationSource, old: Sequence[Outcome], new: Sequence[Outcome],
    logged: Collection[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The data of a summary: untrained against trained on the same tasks; `logged` ids are shown first."""
    rows = _changes(old, new)
    full = next((row["before"] for row in rows if row["view"] == "full"), None)
    examples = []
    for was, now, why in select_examples(old, new, logged):
        task = {"id": was.id, "view": was.view, "task": was.task, "user": was.turns[-1]["user"], "why": why}
        replies = {"before": was.turns[-1]["reply"], "after": now.turns[-1]["reply"]}
        examples.append({**task, **replies, "was": was.correct, "now": now.correct})
    step = after.step or run["done"]
    steps = f"{step} steps" + (f" (the run came to step {run['done']})" if step < run["done"] else "")
    return {
        "run": run["name"],
        "trained": f"{run['model']} was trained with the method {run['method']} for {steps} on "
        f"{run['data']}, {run['rollouts']} conversations a step.",
        "notices": notices(full, run["data"], str(load_identity(after.folder).get("data", ""))),
        "sentence": _sentence(rows),
        "rows": rows,
        "parts": sum(1 for row in rows if row["only"]),
        "facts": [*_facts(old, new), *_training(run)],
        "how": _describe_method(run["method"]),
        "examples": examples,
    }


def _changes(old: Sequence[Outcome], new: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Every view as a whole, then by task and by number of turns, if there are several."""
    compared: list[Compared] = []
    for view in sorted(dict.fromkeys(o.view for o in old), key=lambda v: v != "sharded"):
        pair = [o for o in old if o.view == view], [o for o in new if o.view == view]
        name = NAMES.get(view, view)
        compared.append((name, view, {}, *pair))
        units = {"task": ""} | ({} if view == "full" else {"shards": " turns"})
        for by, unit in units.items():
            values = sorted({getattr(o, by) for o in pair[0]})
            for v in values if len(values) > 1 else []:
                first, second = ([o for o in side if getattr(o, by) == v] for side in pair)
                compared.append((f"{name}: {v}{unit}", view, {by: v}, first, second))
    compared = [one for one in compared if {o.id for o in one[3]} & {o.id for o in one[4]}]
    parts, rows = sum(1 for one in compared if one[2]), []
    for what, of_view, only, before, after in compared:
        change = against(before, after, level=1 - (1 - LEVEL) / (parts if only else 1))
        clear = "better" if change["low"] > 0 else "worse" if change["high"] < 0 else "unclear"
        if only and clear == "unclear" and change["difference"] < 0 and against(before, after)["high"] < 0:
            clear = "perhaps"
        was, now = (accuracy(scores(some))["accuracy"] for some in (before, after))
        row = {"what": what, "view": of_view, "only": only, "clear": clear, "before": was, "after": now}
        keys = ("n", "gained", "lost", "difference", "low", "high")
        rows.append(row | {name: change[name] for name in keys})
    return rows


def _sentence(rows: Sequence[dict[str, Any]]) -> str:
    return " ".join(
        f"{row['what']}: {percent(row['before'])} correct before, {percent(row['after'])} after "
        f"({WORDS[row['clear']]}, {points(row['difference'])} points)."
        for row in rows
        if not row["only"]
    )


def _facts(old: Sequence[Outcome], new: Sequence[Outcome]) -> list[str]:
    def measure(some: Sequence[Outcome]) -> tuple[float, float, float]:
        turns = [turn for o in some for turn in o.turns]
        tokens = sum(turn["tokens"] or 0 for turn in turns) / max(1, len(turns))
        cut = sum(turn["stop"] == "length" for turn in turns) / max(1, len(turns))
        return tokens, cut, sum(o.status == "no_answer" for o in some) / max(1, len(some))

    a, b = measure(old), measure(new)
    return [
        f"A reply had {a[0]:.1f} tokens on average before, {b[0]:.1f} after.",
        f"Replies cut at the token limit: {percent(a[1])} before, {percent(b[1])} after.",
        f"Conversations without an answer at the end: {percent(a[2])} before, {percent(b[2])} after.",
    ]


def _training(run: dict[str, Any]) -> list[str]:
    shown: list[tuple[str, str, Callable[[float], str]]] = [
        ("outcome", "Correct final answers while training", percent),
        ("delta", "Distance between model and copy, nats a token", "{:.3f}".format),
    ]
    columns = [(run["metrics"].get(name, []), what, form) for name, what, form in shown]
    return [
        f"{what}: {form(ends[0])} in the first steps, {form(ends[1])} in the last."
        for column, what, form in columns
        if len(column) > 1 and (ends := first_and_last(column))
    ]


def select_examples(
    old: Sequence[Outcome], new: Sequence[Outcome], logged: Collection[str] = ()
) -> list[tuple[Outcome, Outcome, str]]:
    """Two gains (of two tasks if possible), then a loss or one still wrong; `logged` ids come first."""
    view = "sharded" if any(o.view == "sharded" for o in new) else (new[0].view if new else "")
    was, now = ({o.id: o for o in some if o.view == view and not o.run} for some in (old, new))
    shared = sorted((i for i in was if i in now), key=lambda i: i not in logged)
    gained = [i for i in shared if now[i].correct and not was[i].correct]
    lost = [i for i in shared if was[i].correct and not now[i].correct]
    wrong = [i for i in shared if not was[i].correct and not now[i].correct]
    first_of_task = list({was[i].task: i for i in reversed(gained)}.values())
    best = list(dict.fromkeys([*first_of_task, *gained]))[:2]
    chosen = [(i, "Gained: wrong before, correct after.") for i in best]
    chosen += [(i, "Lost: correct before, wrong after.") for i in lost[:1]]
    chosen += [(i, "Wrong before and after.") for i in wrong[: 3 - len(chosen)]]
    chosen += [(i, "Correct before and after.") for i in shared if i not in dict(chosen)][: 3 - len(chosen)]
    return [(was[i], now[i], why) for i, why in chosen]


def _describe_method(name: str) -> str:
    """What training did, in plain words: for a baseline, the summary of its declaration."""
    try:
        method = find_method(name)
    except ValueError:  # somebody's file that is not on this machine
        return DISTILLED
    return method.summary if method.group == "baselines" else DISTILLED

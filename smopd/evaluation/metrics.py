"""From outcomes to numbers: accuracies with intervals, LiC's A90 and U over runs, and differences.

Every interval is over items (see `accuracy_interval`): with one run Wilson's for an accuracy and McNemar's
test for a difference, with several a bootstrap over items. Variation of training seeds is not included.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.statistics import LEVEL, accuracy_interval, paired, paired_bootstrap
from smopd.evaluation.store import conditions, load_identity, load_outcomes
from smopd.verify.verdict import FAILED

Scores = dict[str, list[bool]]  # right or wrong by item, one per run


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The contents of summary.json: each view, by task and number of shards, and compared with FULL."""
    names = dict.fromkeys(o.view for o in outcomes)
    views = {view: [o for o in outcomes if o.view == view] for view in names}
    summary: dict[str, Any] = {"runs": len({o.run for o in outcomes})}
    summary["views"] = {view: _summarise_view(rows) for view, rows in views.items()}
    # The teacher's last context is the FULL view's, so there is nothing to compare.
    for view in (view for view in views if "full" in views and view not in ("full", "teacher")):
        summary[f"{view}_minus_full"] = against(views["full"], views[view])
    if {"sharded", "teacher"} <= set(views):
        summary["teacher_minus_sharded"] = against(views["sharded"], views["teacher"])
        change = _compare(_known_turns(views["sharded"]), _known_turns(views["teacher"]))
        if change["n"]:
            summary["teacher_minus_sharded"]["middle_turns"] = change
    return summary


def against(before: Iterable[Outcome], after: Iterable[Outcome], *, level: float = LEVEL) -> dict[str, Any]:
    """The change from `before` to `after`, paired by item, on the items that both have."""
    first, second = scores(before), scores(after)
    change = _compare(first, second, level)
    bootstrap = {name: change[name] for name in ("low", "high", "p")}
    runs = [(first[item], second[item]) for item in first if item in second]
    once = all(len(old) == len(new) == 1 for old, new in runs)
    if once:
        result = paired([old for (old,), _ in runs], [new for _, (new,) in runs], level)
        change |= {name: getattr(result, name) for name in bootstrap}
    return {**change, "test": "exact McNemar" if once else "bootstrap over items", "bootstrap": bootstrap}


def _compare(first: Scores, second: Scores, level: float = LEVEL) -> dict[str, Any]:
    items = [item for item in first if item in second]
    old, new = (np.array([np.mean(s[item]) for item in items]) for s in (first, second))
    change = {
        "n": len(items),
        "gained": int((new > old).sum()),
        "lost": int((new < old).sum()),
        "difference": float(new.mean() - old.mean()) if items else 0.0,
    }
    return change | dict(zip(("low", "high", "p"), paired_bootstrap(old, new, level), strict=True))


def scores(
    outcomes: Iterable[Outcome], right: Callable[[Outcome], list[bool]] = lambda o: [o.correct]
) -> Scores:
    by_item: Scores = {}
    for outcome in outcomes:
        by_item.setdefault(outcome.id, []).extend(right(outcome))
    return by_item


def _summarise_view(rows: Sequence[Outcome]) -> dict[str, Any]:
    tokens = [turn["tokens"] or 0 for o in rows for turn in o.turns]
    turns, failed = _known_turns(rows), next((o for o in rows if o.status in FAILED), None)
    return {
        **accuracy(scores(rows)),
        "any_turn": accuracy(scores(rows, lambda o: [o.any_correct])),
        **({"middle_turns": _mean_share(turns)} if turns else {}),
        "by_task": _split(rows, lambda o: o.task),
        "by_shards": _split(rows, lambda o: o.shards),
        "status": dict(sorted(Counter(o.status for o in rows).items())),
        "first_failure": failed and {"id": failed.id, "status": failed.status, "detail": failed.detail},
        "reply_tokens": sum(tokens) / max(1, len(tokens)),
    }


def _known_turns(rows: Iterable[Outcome]) -> Scores:
    """For turn accuracy: by item, whether middle replies state what was told so far, where known."""
    known = scores(rows, lambda o: [turn["right"] for turn in o.turns[:-1] if "right" in turn])
    return {item: right for item, right in known.items() if right}


def _split(rows: Sequence[Outcome], by: Callable[[Outcome], Any]) -> dict[str, Any]:
    parts = sorted({by(o) for o in rows})
    return {str(part): accuracy(scores(o for o in rows if by(o) == part)) for part in parts}


def _mean_share(right: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """The mean over items of their share of right replies, with an interval over items."""
    means = np.array([np.mean(r) for r in right.values()])
    correct, total = sum(map(sum, right.values())), sum(map(len, right.values()))
    low, high = accuracy_interval(means)
    mean = float(means.mean()) if len(means) else 0.0
    return {"accuracy": mean, "correct": correct, "total": total, "low": low, "high": high}


def accuracy(right: Mapping[str, Sequence[bool]]) -> dict[str, Any]:
    """Mean over items of the mean over runs, with its 95% interval; for several runs also LiC's A90 and U."""
    numbers = _mean_share(right)
    if max((len(r) for r in right.values()), default=1) > 1:
        by_item = [np.asarray(r, float) for r in right.values()]
        best, worst = (np.array([np.percentile(r, q) for r in by_item]) for q in (90, 10))
        for name, values in (("a90", best), ("unreliability", best - worst)):
            low, high = accuracy_interval(values)
            numbers |= {name: float(values.mean()), f"{name}_low": low, f"{name}_high": high}
    return numbers


def compare_evaluations(a: Path, b: Path) -> dict[str, Any]:
    """Compare two finished evaluations, paired by item: every view that both have, overall and by task."""
    before, after = load_outcomes(a), load_outcomes(b)
    views = [v for v in dict.fromkeys(o.view for o in before) if any(o.view == v for o in after)]
    if not views:
        raise UserError(f"{a} and {b}: no view was played in both")
    result: dict[str, Any] = {"a": str(a), "b": str(b), "views": {}, "warnings": _list_differences(a, b)}
    for view in views:
        first, second = ([o for o in rows if o.view == view] for rows in (before, after))
        shared = {o.id for o in first} & {o.id for o in second}
        if not shared:
            raise UserError(f"{a} and {b}: {view.upper()}: no item was played in both")
        for name, rows in ((a, first), (b, second)):
            if left := len({o.id for o in rows} - shared):
                what = f"{left} items of {name} are not in the other and do not count"
                result["warnings"].append(f"{view.upper()}: {what}")
        first, second = ([o for o in rows if o.id in shared] for rows in (first, second))
        by_task = {}
        for task in sorted({o.task for o in first}):
            by_task[task] = against(*([o for o in rows if o.task == task] for rows in (first, second)))
        changes = {"change": against(first, second), "by_task": by_task}
        result["views"][view] = {"a": accuracy(scores(first)), "b": accuracy(scores(second)), **changes}
    return result


def _list_differences(a: Path, b: Path) -> list[str]:
    first, second = (flatten(conditions(load_identity(folder))) for folder in (a, b))
    # The file's name does not matter: the hash of its examples is compared too.
    names = [name for name in first if name in second and name != "data" and first[name] != second[name]]
    return [f"{name} is not the same in both: {first[name]} and {second[name]}" for name in names]

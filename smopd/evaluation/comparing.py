"""Two finished evaluations against each other, item by item. It leaves out how that is shown."""

from pathlib import Path
from typing import Any

from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.metrics import accuracy, against, scores
from smopd.evaluation.store import load_identity, load_outcomes


def compare_evaluations(a: Path, b: Path) -> dict[str, Any]:
    """Two finished evaluations, paired by item: for every view both have, the whole and each task."""
    before, after = load_outcomes(a), load_outcomes(b)
    views = [v for v in dict.fromkeys(o.view for o in before) if any(o.view == v for o in after)]
    if not views:
        raise UserError(f"{a} and {b}: no view was played in both")
    result: dict[str, Any] = {"a": str(a), "b": str(b), "views": {}, "warnings": _unlike(a, b)}
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
            x, y = ([o for o in rows if o.task == task] for rows in (first, second))
            by_task[task] = against(x, y)
        changes = {"change": against(first, second), "by_task": by_task}
        result["views"][view] = {"a": accuracy(scores(first)), "b": accuracy(scores(second)), **changes}
    return result


def _unlike(a: Path, b: Path) -> list[str]:
    """What was not the same in both, besides the model."""
    first, second = (flatten(load_identity(folder)) for folder in (a, b))
    of_the_model = ("model", "weights", "adapter", "data", "dtype", "engine", "eval.views")
    shared = [name for name in first if name in second and name not in of_the_model]
    names = [name for name in shared if first[name] != second[name]]
    return [f"{name} is not the same in both: {first[name]} and {second[name]}" for name in names]

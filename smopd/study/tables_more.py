"""The tables beside the comparison: the paper's numbers, the tokens of a run, what a mask drops.

Each is empty where the study has nothing for it. It leaves out the accuracies and tests (tables.py).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from smopd.formatting import finite, points
from smopd.study.paper import PaperRow, find, paper_model, paper_rows
from smopd.study.results import Cell
from smopd.study.table_parts import EMPTY, NONE, Entry, Maker, Path, Place, StudyTable, plain, whole
from smopd.tables import Row

Pick = Callable[[Cell], dict[str, Any] | None]

CALIBRATION = {
    "tokens": "tokens", "agreement": "teacher agrees", "agreement_kept": "kept",
    "agreement_dropped": "dropped", "ece": "ECE", "auroc": "AUROC",
}  # fmt: skip
BINS = {"count": "tokens", "student": "student", "teacher": "teacher", "agreement": "teacher agrees"}
GRADIENTS = {
    "tokens_dropped": "tokens dropped", "divergence_dropped": "divergence dropped", "norm_kept": "norm, kept",
    "norm_dropped": "norm, dropped", "norm_share_dropped": "share of norm dropped", "cosine": "cosine",
}  # fmt: skip


def paper_table(make: Maker) -> StudyTable:
    """Ours beside the printed values of the paper's study that this one repeats."""
    r, rows = make.results, []
    for place in make.places:
        cells = make.cells(place)
        axes = make.axes_of[place.point]
        steps = [v for name, v in axes.items() if name.split(".")[-1] == "steps" and isinstance(v, int)]
        for printed in _printed(r.paper, place, steps[0] if steps else None) if cells else ():
            for view in r.views:
                accuracy, theirs = printed.accuracy(view), printed.effect(view, r.reference)
                if accuracy is None and theirs is None:
                    continue
                path, both = make.path("paper", place, view), make.pair(place, view)
                found = make.effects[view].get(place)
                ours = make.accuracies(path[:-1], cells)[r.views.index(view)]
                delta = make.one(path, both, "delta", found.delta, points) if found else EMPTY
                apart = EMPTY
                if found and theirs is not None:
                    of = [*path, f"{printed.model}-{printed.steps}"]
                    apart = make.one(of, both, "less-paper", found.delta - theirs / 100, points)
                parts = (printed.table, printed.label, printed.column)
                where = ", ".join(dict.fromkeys(part for part in parts if part))
                source = f"{printed.model.upper()}, {printed.steps} steps: {where}"
                entries: tuple[Entry, ...] = (
                    (view.upper(),), ours, (_text(accuracy, "{:.1f}"),), delta, (_text(theirs, "{:+.1f}"),),
                    apart, make.judged(place, view), (source,),
                )  # fmt: skip
                rows.append(Row(place.arm, entries, make.group(place)))
    heads = (
        "arm", "view", "ours, %", "paper, %", "our difference", "paper's", "ours less paper's", "our verdict",
        "paper",
    )  # fmt: skip
    caption = (
        f"Differences from {r.reference} in percentage points; where the paper prints none, that of its "
        "printed accuracies. A model that the paper does not have stands beside each of the paper's: then "
        "only the direction and the size of an effect can be compared."
    )
    return StudyTable(
        name="paper", section="Beside the paper", title=f"Ours and the paper's: {r.paper}", caption=caption,
        heads=heads, rows=rows, words=(1, 7, 8),
    )  # fmt: skip


def calibration_tables(make: Maker) -> list[StudyTable]:
    """Calibration of the logged tokens, in all and by the student's probability."""
    caption = (
        "Middle replies; the teacher agrees with a token if it gives it at least half the student's "
        "probability. AUROC: of one token it disagrees with and one it agrees with, how often the first has "
        "the higher entropy; its interval is that of a run, averaged over seeds. Mean ± sample standard "
        "deviation over seeds."
    )
    rows = []
    for place in make.places:
        cells = make.cells(place)
        edges = sorted({(b["low"], b["high"]) for cell in cells for b in (cell.tokens or {}).get("bins", [])})
        for low, high in edges:
            path = make.path("bins", place, f"{low:g}-{high:g}")
            entries = _means(make, path, cells, partial(_bin, low), list(BINS))
            group = ", ".join(part for part in (make.group(place), place.arm) if part)
            rows.append(Row(f"{low:g} to {high:g}", tuple(entries), group))
    title, heads = "Tokens by the student's probability of them", ("probability", *BINS.values())
    bins = StudyTable(name="bins", section="Tokens", title=title, heads=heads, rows=rows, fold=True)
    words = ("Tokens", "Does entropy tell?", caption)
    return [_arms(make, "calibration", lambda cell: cell.tokens, CALIBRATION, words, "auroc"), bins]


def gradient_table(make: Maker) -> StudyTable:
    """What a mask drops of the middle turns' gradient."""
    caption = "The gradient of the middle turns, split into that of the kept and of the dropped tokens."
    words = ("Gradients", "What the mask drops", f"{caption} Mean ± sd over seeds.")
    return _arms(make, "gradients", lambda cell: cell.gradients, GRADIENTS, words)


def _arms(
    make: Maker,
    name: str,
    pick: Pick,
    columns: dict[str, str],
    words: tuple[str, str, str],
    bounded: str = "",
) -> StudyTable:
    """A row for every arm with measurements; `bounded` is one that every run has an interval of."""
    rows = []
    for place in make.places:
        cells, path = [cell for cell in make.cells(place) if pick(cell)], make.path(name, place)
        if not cells:
            continue
        entries = _means(make, path, cells, pick, list(columns))
        if bounded:
            ends = _means(make, path, cells, pick, [f"{bounded}_low", f"{bounded}_high"])
            low, high = (end[:1] for end in ends)
            entries.append(EMPTY if EMPTY in (low, high) else ("[", *low, ", ", *high, "]"))
        rows.append(Row(place.arm, tuple(entries), make.group(place)))
    heads = ("arm", *columns.values(), *(["95% interval"] if bounded else []))
    section, title, caption = words
    return StudyTable(name=name, section=section, title=title, caption=caption, heads=heads, rows=rows)


def _means(make: Maker, path: Path, cells: list[Cell], pick: Pick, columns: Sequence[str]) -> list[Entry]:
    entries = []
    for key in columns:
        values = {cell.source.folder: finite((pick(cell) or {}).get(key)) for cell in cells}
        some = [cell for cell in cells if values[cell.source.folder] is not None]
        known = [value for value in values.values() if value is not None]
        entries.append(make.spread([*path, key], some, known, whole if key in ("tokens", "count") else plain))
    return entries


def _bin(low: float, cell: Cell) -> dict[str, Any] | None:
    return next((b for b in (cell.tokens or {}).get("bins", []) if b["low"] == low), None)


def _printed(study: str, place: Place, steps: int | None) -> list[PaperRow]:
    """The paper's rows of an arm: of the same model, or of each where it does not have ours."""
    if paper_model(place.model) is not None:
        row = find(study, place.model, place.arm, steps)
        return [row] if row else []
    return [row for row in paper_rows(study) if row.arm == place.arm and steps in (None, row.steps)]


def _text(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)

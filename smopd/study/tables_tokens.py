"""The tables of what was measured token by token: calibration, and what a mask drops of the gradient.

Each is empty where the study has nothing for it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from smopd.formatting import finite
from smopd.study.results import Cell
from smopd.study.table_parts import EMPTY, Entry, Path, StudyTable, TableBuilder, plain, whole
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


def calibration_tables(make: TableBuilder) -> list[StudyTable]:
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


def gradient_table(make: TableBuilder) -> StudyTable:
    """What a mask drops of the middle turns' gradient."""
    caption = "The gradient of the middle turns, split into that of the kept and of the dropped tokens."
    words = ("Gradients", "What the mask drops", f"{caption} Mean ± sd over seeds.")
    return _arms(make, "gradients", lambda cell: cell.gradients, GRADIENTS, words)


def _arms(
    make: TableBuilder,
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


def _means(
    make: TableBuilder, path: Path, cells: list[Cell], pick: Pick, columns: Sequence[str]
) -> list[Entry]:
    entries = []
    for key in columns:
        values = {cell.source.folder: finite((pick(cell) or {}).get(key)) for cell in cells}
        some = [cell for cell in cells if values[cell.source.folder] is not None]
        known = [value for value in values.values() if value is not None]
        entries.append(make.spread([*path, key], some, known, whole if key in ("tokens", "count") else plain))
    return entries


def _bin(low: float, cell: Cell) -> dict[str, Any] | None:
    return next((b for b in (cell.tokens or {}).get("bins", []) if b["low"] == low), None)

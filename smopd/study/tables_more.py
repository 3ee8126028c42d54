"""The tables beside the comparison itself: the paper's numbers, the tokens of a run, what a mask drops of the
gradient.

Each is empty where the study has nothing for it. It leaves out the accuracies and tests (tables.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

from smopd.formatting import finite, points
from smopd.study.paper import PaperRow, find, paper_model, paper_rows
from smopd.study.results import Cell
from smopd.study.table_parts import EMPTY, NONE, Entry, Maker, Path, Row, Table, grid, plain, whole

Measured = dict[str, Any] | None
Pick = Callable[[Cell], Measured]
COUNTS = ("tokens", "count")

CALIBRATION = {
    "tokens": "tokens", "agreement": "teacher agrees", "agreement_kept": "kept", "agreement_dropped": "dropped", "ece": "ECE",
    "auroc": "AUROC",
}  # fmt: skip
BINS = {"count": "tokens", "student": "student", "teacher": "teacher", "agreement": "teacher agrees"}
GRADIENTS = {
    "tokens_dropped": "tokens dropped", "divergence_dropped": "divergence dropped", "norm_kept": "norm, kept",
    "norm_dropped": "norm, dropped", "norm_share_dropped": "share of norm dropped", "cosine": "cosine",
}  # fmt: skip


def paper_table(make: Maker) -> Table:
    """Ours beside the printed values of the paper's study that this one repeats."""
    r, rows = make.results, []
    for model, point, arm in grid(r):
        cells = r.group(model, arm, point)
        for printed in _printed(r.paper, model, arm, _steps(point)) if cells else ():
            for view in r.views:
                accuracy, theirs = printed.accuracy(view), _printed_effect(printed, view, r.reference)
                if accuracy is None and theirs is None:
                    continue
                path = make.path("paper", model, point, arm, view)
                ours = make.accuracies(path[:-1], cells)[r.views.index(view)]
                found, both = make.effect(model, point, arm, view), make.pair(model, point, arm, view)
                delta = apart = EMPTY
                if found:
                    delta = make.one(path, "delta", found.delta, points, both)
                if found and theirs is not None:
                    key = f"{printed.model}-{printed.steps}/less-paper"
                    apart = (
                        make.number(
                            [*path, *key.split("/")], gap := found.delta - theirs / 100, points(gap), both
                        ),
                    )
                where = ", ".join(
                    dict.fromkeys(part for part in (printed.table, printed.label, printed.column) if part)
                )
                entries: tuple[Entry, ...] = (
                    (view.upper(),), ours, (_text(accuracy, "{:.1f}"),), delta, (_text(theirs, "{:+.1f}"),), apart,
                    make.judged(model, point, arm, view), (f"{printed.model.upper()}, {printed.steps} steps: {where}",),
                )  # fmt: skip
                rows.append(Row(arm, entries, make.group(model, point)))
    heads = (
        "arm",
        "view",
        "ours, %",
        "paper, %",
        "our difference",
        "paper's",
        "ours less paper's",
        "our verdict",
        "paper",
    )
    caption = (
        f"Differences from {r.reference} in percentage points; where the paper prints none, that of its printed "
        "accuracies. A model that the paper does not have stands beside each of the paper's: then only the direction and "
        "the size of an effect can be compared."
    )
    return Table(
        "paper",
        "Beside the paper",
        f"Ours and the paper's: {r.paper}",
        caption,
        heads,
        tuple(rows),
        (1, 7, 8),
    )


def calibration_tables(make: Maker) -> list[Table]:
    """Calibration of the logged tokens, in all and by the student's probability."""
    caption = (
        "Middle replies; the teacher agrees with a token if it gives it at least half the student's probability. AUROC: "
        "of one token it disagrees with and one it agrees with, how often the first has the higher entropy; its interval "
        "is that of a run, averaged over seeds. Mean ± sample standard deviation over seeds."
    )
    rows = []
    for model, point, arm in grid(make.results):
        cells = make.results.group(model, arm, point)
        edges = sorted({(b["low"], b["high"]) for cell in cells for b in (cell.tokens or {}).get("bins", [])})
        for low, high in edges:
            path = make.path("bins", model, point, arm, f"{low:g}-{high:g}")
            entries = _means(make, path, cells, lambda cell, low=low: _bin(cell, low), list(BINS))  # type: ignore[misc]
            group = ", ".join(part for part in (make.group(model, point), arm) if part)
            rows.append(Row(f"{low:g} to {high:g}", tuple(entries), group))
    title = "Tokens by the student's probability of them"
    bins = Table("bins", "Tokens", title, "", ("probability", *BINS.values()), tuple(rows), fold=True)
    return [
        _arms(make, "calibration", _tokens, CALIBRATION, ("Tokens", "Does entropy tell?", caption), "auroc"),
        bins,
    ]


def gradient_table(make: Maker) -> Table:
    """What a mask drops of the middle turns' gradient."""
    caption = "The gradient of the middle turns, split into that of the kept and of the dropped tokens. Mean ± sd over seeds."
    return _arms(
        make,
        "gradients",
        lambda cell: cell.gradients,
        GRADIENTS,
        ("Gradients", "What the mask drops", caption),
    )


def _arms(
    make: Maker,
    name: str,
    pick: Pick,
    columns: dict[str, str],
    words: tuple[str, str, str],
    bounded: str = "",
) -> Table:
    """A row for every arm with measurements; `bounded` is one that every run has an interval of."""
    rows = []
    for model, point, arm in grid(make.results):
        cells = [cell for cell in make.results.group(model, arm, point) if pick(cell)]
        if cells:
            path = make.path(name, model, point, arm)
            entries = _means(make, path, cells, pick, list(columns))
            if bounded:
                low, high = (
                    entry[:1]
                    for entry in _means(make, path, cells, pick, [f"{bounded}_low", f"{bounded}_high"])
                )
                entries.append(EMPTY if EMPTY in (low, high) else ("[", *low, ", ", *high, "]"))
            rows.append(Row(arm, tuple(entries), make.group(model, point)))
    return Table(
        name, *words, ("arm", *columns.values(), *(["95% interval"] if bounded else [])), tuple(rows)
    )


def _means(make: Maker, path: Path, cells: list[Cell], pick: Pick, columns: Sequence[str]) -> list[Entry]:
    entries = []
    for key in columns:
        found = [
            (value, cell) for cell in cells if (value := finite((pick(cell) or {}).get(key))) is not None
        ]
        entries.append(
            make.spread(
                [*path, key],
                [value for value, _ in found],
                whole if key in COUNTS else plain,
                [cell for _, cell in found],
            )
        )
    return entries


def _tokens(cell: Cell) -> Measured:
    return cell.tokens


def _bin(cell: Cell, low: float) -> Measured:
    return next((b for b in (cell.tokens or {}).get("bins", []) if b["low"] == low), None)


def _printed(study: str, model: str, arm: str, steps: int | None) -> list[PaperRow]:
    """The paper's rows of an arm: of the same model, or of each where it does not have ours."""
    if paper_model(model) is not None:
        row = find(study, model, arm, steps)
        return [row] if row else []
    return [row for row in paper_rows(study) if row.arm == arm and steps in (None, row.steps)]


def _printed_effect(row: PaperRow, view: str, reference: str) -> float | None:
    """In points, as printed; else the difference of the printed accuracies."""
    printed = {"sharded": row.delta, "full": row.delta_full}.get(view)
    if printed is not None or row.arm == reference:
        return printed
    wanted = (row.model, row.steps, row.table, reference)
    same = [
        other
        for other in paper_rows(row.study)
        if (other.model, other.steps, other.table, other.arm) == wanted
    ]
    a, b = row.accuracy(view), same[0].accuracy(view) if same else None
    return None if a is None or b is None else round(a - b, 6)


def _steps(point: dict[str, Any]) -> int | None:
    return next(
        (value for name, value in point.items() if name.split(".")[-1] == "steps" and isinstance(value, int)),
        None,
    )


def _text(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)

"""The table that puts a study's numbers beside the paper's printed ones; empty where it repeats none."""

from smopd.formatting import points
from smopd.study.paper import PaperRow, find, paper_model, paper_rows
from smopd.study.table_parts import EMPTY, NONE, Entry, Place, StudyTable, TableBuilder
from smopd.tables import Row


def paper_table(make: TableBuilder) -> StudyTable:
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


def _printed(study: str, place: Place, steps: int | None) -> list[PaperRow]:
    """The paper's rows of an arm: of the same model, or of each where it does not have ours."""
    if paper_model(place.model) is not None:
        row = find(study, place.model, place.arm, steps)
        return [row] if row else []
    return [row for row in paper_rows(study) if row.arm == place.arm and steps in (None, row.steps)]


def _text(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)

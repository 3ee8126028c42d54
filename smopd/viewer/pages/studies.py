"""A study as its page shows it: the verdict, every arm with its seeds and interval, the items that flip."""

from pathlib import Path
from typing import Any

import numpy as np

from smopd.evaluation.statistics import accuracy_interval
from smopd.runs import is_run
from smopd.study.results import Cell, Results
from smopd.study.run import StudyFolder
from smopd.study.table_parts import Place, TableBuilder
from smopd.study.tables import comparison_sentences, verdict_lines

FLIPS = 100  # items of an arm that are listed


def study_runs(folder: StudyFolder) -> list[Path]:
    """The run folders of a study: the untrained models and the cells, those that there are."""
    places = [folder.base(model.name) for model in folder.study.models]
    places += [folder.cell(cell) for cell in folder.study.cells]
    return [place for place in dict.fromkeys(places) if is_run(place)]


def study_payload(results: Results, folder: Path, numbers: dict[str, int]) -> dict[str, Any]:
    """A study in this folder, for its page; `numbers`: where its runs stand among all, by folder."""
    make = TableBuilder(results)
    views = []
    for view in make.views:
        arms = [_arm(make, place, view, folder, numbers) for place in make.places]
        base = [_base(results, cell, view, folder, numbers) for cell in results.base if view in cell.right]
        views.append({"view": view, "arms": [*base, *(arm for arm in arms if arm)]})
    return {
        "name": results.name,
        "title": results.title or results.name,
        "about": results.about,
        "reference": results.reference,
        "verdicts": verdict_lines(results, make.effects),
        "sentences": comparison_sentences(results, make.effects),
        "seeds": len(results.seeds),
        "items": len(results.items),
        "missing": results.missing,
        "views": views,
    }


def _arm(
    make: TableBuilder, place: Place, view: str, folder: Path, numbers: dict[str, int]
) -> dict[str, Any] | None:
    cells = make.cells(place, view)
    if not cells:
        return None
    effect = make.effects[view].get(place)
    spread = _cells(make.results, cells, view, folder, numbers)
    label = ", ".join(part for part in (place.arm, make.group(place)) if part)
    payload = {"arm": label, "reference": place.arm == make.results.reference, **spread, "flips": []}
    if effect:
        clustered = effect.clustered
        payload |= {
            "verdict": effect.verdict, "difference": effect.delta, "p": effect.p_adjusted,
            "low_difference": clustered.low if clustered else None,
            "high_difference": clustered.high if clustered else None, "flips": _flips(make, place, view),
        }  # fmt: skip
    return payload


def _base(results: Results, cell: Cell, view: str, folder: Path, numbers: dict[str, int]) -> dict[str, Any]:
    return {"arm": f"untrained {cell.model}", **_cells(results, [cell], view, folder, numbers), "flips": []}


def _cells(
    results: Results, cells: list[Cell], view: str, folder: Path, numbers: dict[str, int]
) -> dict[str, Any]:
    """Mean, its interval over items, and every seed with the run it is of."""
    matrix = results.matrix(cells, view)
    low, high = accuracy_interval(matrix.mean(axis=0))
    seeds = [
        {"seed": cell.seed, "value": float(row.mean()),
         "run": numbers.get(str((folder / cell.source.folder).resolve()))}
        for cell, row in zip(cells, matrix, strict=True)
    ]  # fmt: skip
    return {"mean": float(matrix.mean()), "low": low, "high": high, "seeds": seeds}


def _flips(make: TableBuilder, place: Place, view: str) -> list[dict[str, Any]]:
    """Items whose share of right runs changes most against the reference."""
    treatment, reference = (matrix.mean(axis=0) for matrix in make.matrices(place, view))
    change = treatment - reference
    order = [k for k in np.argsort(-np.abs(change), kind="stable") if abs(change[k]) >= 0.5][:FLIPS]
    items = make.results.items
    return [{"id": items[k], "from": float(reference[k]), "to": float(treatment[k])} for k in order]

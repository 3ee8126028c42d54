"""The data of a study's page: the verdict, every arm with its seeds and interval, the items that flip."""

from pathlib import Path
from typing import Any

import numpy as np

from smopd.evaluation.statistics import accuracy_interval
from smopd.runs import is_run
from smopd.study.results import Cell, Results
from smopd.study.run import StudyFolder
from smopd.study.table_parts import Place, TableBuilder
from smopd.study.tables import comparison_sentences, verdict_lines


def study_runs(folder: StudyFolder) -> list[Path]:
    """The run folders of a study that exist: the untrained models, then the cells."""
    places = [folder.base(model.name) for model in folder.study.models]
    places += [folder.cell(cell) for cell in folder.study.cells]
    return [place for place in dict.fromkeys(places) if is_run(place)]


def study_payload(results: Results, folder: Path, numbers: dict[str, int]) -> dict[str, Any]:
    """The data of a study's page; `numbers`: by folder, the position of its runs among all runs."""
    make = TableBuilder(results)

    def arm(name: str, cells: list[Cell], view: str) -> dict[str, Any]:
        matrix = results.matrix(cells, view)
        low, high = accuracy_interval(matrix.mean(axis=0))
        seeds = []
        for cell, row in zip(cells, matrix, strict=True):
            run = numbers.get(str((folder / cell.source.folder).resolve()))
            seeds.append({"seed": cell.seed, "value": float(row.mean()), "run": run})
        ends = {"mean": float(matrix.mean()), "low": low, "high": high}
        return {"arm": name, **ends, "seeds": seeds, "flips": []}

    views = []
    for view in make.views:
        arms = [arm(f"untrained {cell.model}", [cell], view) for cell in results.base if view in cell.right]
        for place in make.places:
            if cells := make.cells(place, view):
                label = ", ".join(part for part in (place.arm, make.group(place)) if part)
                arms.append(arm(label, cells, view) | _against_reference(make, place, view))
        views.append({"view": view, "arms": arms})
    return {
        **{name: getattr(results, name) for name in ("name", "about", "reference", "missing")},
        "title": results.title or results.name,
        "verdicts": verdict_lines(make, results.missing),
        "sentences": comparison_sentences(make),
        "seeds": len(results.seeds),
        "items": len(results.items),
        "views": views,
    }


def _against_reference(make: TableBuilder, place: Place, view: str) -> dict[str, Any]:
    """The difference of an arm, and at most 100 items whose share of right runs differs by at least 0.5."""
    facts: dict[str, Any] = {"reference": place.arm == make.results.reference}
    if effect := make.effects[view].get(place):
        over, items = effect.clustered, make.results.items
        treatment, reference = (matrix.mean(axis=0) for matrix in make.matrices(place, view))
        change = np.abs(treatment - reference)
        order = [k for k in np.argsort(-change, kind="stable") if change[k] >= 0.5][:100]
        facts |= {
            "verdict": effect.verdict, "difference": effect.delta, "p": effect.p_adjusted,
            "low_difference": over.low if over else None, "high_difference": over.high if over else None,
            "flips": [{"id": items[k], "from": reference[k], "to": treatment[k]} for k in order],
        }  # fmt: skip
    return facts

"""A study's results in one JSON file, from which alone its report is made, the same on any machine."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from smopd.errors import UserError
from smopd.files import check_shape, read_json, write_text

_SOURCE = {"folder": str, "config": str, "seed": (int, None), "data": str, "trained_by": (str, None),
           "evaluated_by": str, "adapter": (str, None)}  # fmt: skip
_CELL = {"model": str, "arm": str, "axes": dict, "seed": (int, None), "source": _SOURCE, "right": {str: str},
         "right_any": {str: str}, "curves?": {str: [(float, None)]}, "tokens?": (dict, None),
         "gradients?": (dict, None), "seconds?": (float, None)}  # fmt: skip
_RESULTS = {"name": str, "title": str, "about": str, "reference": str, "arms": [str], "models": [str],
            "axes": {str: [object]}, "seeds": [int], "views": [str], "runs": int, "items": [str], "data": str,
            "paper": str, "cells": [_CELL], "base": [_CELL], "missing": [str],
            "rules?": {str: str}, "middle?": [int]}  # fmt: skip
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
TURNS = "turns"  # pseudo-view of turn accuracy: how many of an item's middle replies were right


@dataclass(frozen=True)
class CellSource:
    folder: str  # of the run or the evaluation, relative to the study's folder
    config: str  # hash of every setting
    seed: int | None
    data: str  # hash of the evaluation examples
    trained_by: str | None  # version and source hash of the code that trained, None for a base model
    evaluated_by: str
    adapter: str | None  # SHA-256 of the trained adapter


@dataclass(frozen=True)
class Cell:
    """One run and its results. A base model has the arm "base" and no seed."""

    model: str
    arm: str
    axes: dict[str, Any]
    seed: int | None
    source: CellSource
    # View -> one base-36 digit per item, in the study's order: how many of its runs were right, or for TURNS
    # how many of its middle replies.
    right: dict[str, str]
    right_any: dict[str, str]  # the same for "right at any turn"
    curves: dict[str, list[float | None]] = field(default_factory=dict)  # metric -> one value per step
    tokens: dict[str, Any] | None = None  # calibration of the token log, see calibration.py
    gradients: dict[str, Any] | None = None  # of `smopd study gradients`, see gradients.py
    seconds: float | None = None  # of training


@dataclass(frozen=True)
class Results:
    name: str
    title: str
    about: str
    reference: str  # the arm all others are compared with
    arms: list[str]  # in the order of the study file, the reference among them
    models: list[str]
    axes: dict[str, list[Any]]  # setting -> its values
    seeds: list[int]
    views: list[str]
    runs: int  # number of times every conversation was played
    items: list[str]
    data: str  # the evaluation set as the config names it
    paper: str  # the paper's study that this one repeats (see paper.py), or empty
    cells: list[Cell]
    base: list[Cell]
    missing: list[str]  # cells that have no result yet
    rules: dict[str, str] = field(default_factory=dict)  # by task, for tasks with several rules
    # By item, how many middle replies of its runs were judged; empty if not known for every item.
    middle: list[int] = field(default_factory=list)

    def group(self, model: str, arm: str, axes: dict[str, Any] | None = None) -> list[Cell]:
        """The runs of an arm by seed; the arm "base" is the untrained model, whatever the axes are."""
        cells = self.base if arm == "base" else [c for c in self.cells if axes in (None, c.axes)]
        return sorted((c for c in cells if (c.model, c.arm) == (model, arm)), key=lambda c: c.seed or 0)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the axes' values; one empty combination without axes."""
        return [dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values())]

    def matrix(self, cells: list[Cell], view: str) -> np.ndarray:
        """The scores of these cells, [seeds, items]."""
        return np.array([self.scores(cell, view) for cell in cells])

    def scores(self, cell: Cell, view: str) -> np.ndarray:
        """The share of each item's runs (TURNS: of its middle replies) that were right, [items]."""
        counts = np.array([int(digit, 36) for digit in cell.right[view]], dtype=float)
        return counts / (np.array(self.middle) if view == TURNS else self.runs)

    def accuracy(self, cell: Cell, view: str) -> float:
        return float(self.scores(cell, view).mean())


def encode(counts: list[int]) -> str:
    if max(counts, default=0) >= len(DIGITS):
        raise UserError(f"eval.runs: a study holds at most {len(DIGITS) - 1} runs of a conversation")
    return "".join(DIGITS[count] for count in counts)


def round_finite(value: float | None, digits: int) -> float | None:
    """Round to significant digits; None for NaN and infinities, since results are JSON."""
    return None if value is None or not isfinite(value) else float(f"{value:.{digits}g}")


def save_results(path: Path, results: Results) -> None:
    """Write one line per cell, so that diffs stay readable."""
    write_text(path, json_by_rows(asdict(results), ("cells", "base")))


def json_by_rows(tree: dict[str, Any], rows: Sequence[str]) -> str:
    """JSON with one line per entry of the lists named by `rows`, and one line for everything else."""
    parts = []
    for name, value in tree.items():
        text = json.dumps(value, ensure_ascii=False)
        if name in rows and value:
            text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n]"
        parts.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def load_results(path: Path) -> Results:
    """Read what `save_results` wrote; raises a UserError for any other content."""
    plain = read_json(path)
    later = {"rules", "middle"}  # missing in files of earlier versions
    wanted = {f.name for f in fields(Results)} - later
    if not isinstance(plain, dict) or set(plain) - later != wanted:
        raise UserError(f"{path}: not the results of a study (expected the keys {', '.join(sorted(wanted))})")
    check_shape(plain, _RESULTS, str(path))
    if not plain["cells"] and not plain["base"]:
        raise UserError(f"{path}: holds no run, neither a cell nor an untrained model: nothing to report")
    if not plain["views"] or not plain["models"] or plain["runs"] not in range(1, len(DIGITS)):
        needs = f"views, models and runs (1 to {len(DIGITS) - 1}) say what was played"
        raise UserError(f"{path}: {needs}; the file is damaged")
    for name in ("cells", "base"):
        for number, row in enumerate(plain[name], 1):
            _check_digits(row, plain, f"{path}, {name} {number}")
        try:
            plain[name] = [Cell(**row | {"source": CellSource(**row["source"])}) for row in plain[name]]
        except TypeError as error:
            raise UserError(f"{path}: not the results of a study: {error}") from None
    return Results(**plain)


def _check_digits(row: dict[str, Any], plain: dict[str, Any], where: str) -> None:
    """Check one digit per item, at most its runs (TURNS: its middle replies), and equal views in both."""
    items = len(plain["items"])
    for key in ("right", "right_any"):
        for view, digits in row[key].items():
            most = plain.get("middle", []) if view == TURNS else [plain["runs"]] * items
            fits = len(digits) == len(most) == items and items > 0
            if not fits or any(d not in DIGITS[: n + 1] for d, n in zip(digits, most, strict=True)):
                each = f"expected a digit for each of {items} items, at most how often it was played"
                raise UserError(f"{where}, field '{key}.{view}': {each}; the file is damaged")
    if set(row["right"]) - {TURNS} != set(row["right_any"]) or not row["right_any"]:
        raise UserError(f"{where}: right and right_any must have the same views; the file is damaged")

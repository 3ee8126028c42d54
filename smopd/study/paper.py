"""The paper's result tables as data: every number as printed, in percent and percentage points, and its
place. Notes in paper.json mark where the paper's own runs give another last digit.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import TypeAdapter


@dataclass(frozen=True)
class PaperRow:
    """One configuration as printed; None: not in the paper. Only tests read the file's other fields."""

    study: str
    table: str  # "Table 2", or "text" for what no table holds
    label: str  # of the row, as printed
    model: str  # "1.7b", "4b" or "8b"
    arm: str  # "baseline", "entropy", "outcome" or "combined"
    steps: int
    full: float | None = None
    sharded: float | None = None
    full_sd: float | None = None  # sample standard deviation over seeds
    sharded_sd: float | None = None
    delta: float | None = None  # SHARDED against the baseline
    delta_full: float | None = None
    column: str | None = None  # heading of the SHARDED number in a table with a column a configuration

    def accuracy(self, view: str) -> float | None:
        return {"full": self.full, "sharded": self.sharded}.get(view.lower())

    def sd(self, view: str) -> float | None:
        return {"full": self.full_sd, "sharded": self.sharded_sd}.get(view.lower())

    def effect(self, view: str, reference: str) -> float | None:
        """Difference from the reference in points: as printed, else that of the printed accuracies."""
        printed = {"sharded": self.delta, "full": self.delta_full}.get(view)
        if printed is not None or self.arm == reference:
            return printed
        wanted = (self.model, self.steps, self.table, reference)
        same = (r for r in paper_rows(self.study) if (r.model, r.steps, r.table, r.arm) == wanted)
        a, b = (row.accuracy(view) if row else None for row in (self, next(same, None)))
        return None if a is None or b is None else round(a - b, 6)


_SIZE = re.compile(r"(?:.*/)?(?:qwen3-)?(1\.7b|4b|8b)")


@cache
def paper_data() -> dict[str, Any]:
    return json.loads(files("smopd.study").joinpath("paper.json").read_text(encoding="utf-8"))


@cache
def paper_rows(study: str) -> tuple[PaperRow, ...]:
    """The rows of a study in printed order; empty for a study the paper does not have."""
    rows = (row for one in paper_data()["studies"] if one["name"] == study for row in one["rows"])
    return TypeAdapter(tuple[PaperRow, ...]).validate_python([row | {"study": study} for row in rows])


def paper_model(name: str) -> str | None:
    """The paper's size for a model's name ("qwen3-1.7b", "Qwen/Qwen3-1.7B"); None for any other model."""
    size = _SIZE.fullmatch(name.lower())
    return size.group(1) if size else None


def find(study: str, model: str, arm: str, steps: int | None = None) -> PaperRow | None:
    """The row of a configuration; without `steps`, the only one. None if there is none or several."""
    wanted = (paper_model(model), arm)
    rows = [r for r in paper_rows(study) if (r.model, r.arm) == wanted and steps in (None, r.steps)]
    return rows[0] if len(rows) == 1 else None

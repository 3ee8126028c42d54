"""`Evaluation`: a finished evaluation, as a dict of its summaries by view."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.evaluation.store import load_outcomes, load_summary
from smopd.formatting import esc, interval, percent
from smopd.frames import messages, table


class SelfDescribing(ABC):
    """Text and HTML representations made from `_lines`."""

    @abstractmethod
    def _lines(self) -> list[tuple[str, str]]:
        """Pairs of a label and a value."""

    def __repr__(self) -> str:
        return "\n".join(f"{what:<10} {value}" for what, value in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{esc(what)}</th><td>{esc(value)}</td></tr>" for what, value in self._lines())
        return f"<table>{rows}</table>"


class Evaluation(SelfDescribing, dict[str, Any]):
    """A finished evaluation: a dict from view to summary, with everything else as attributes. `side`: "base"
    or the checkpoint's name for a run's evaluation, else None.
    """

    def __init__(self, path: str | Path, side: str | None = None) -> None:
        self.path, self.side = Path(path), side
        if (summary := load_summary(self.path)) is None:
            raise UserError(f"{self.path}: is no finished evaluation (no summary.json)")
        self.summary = summary  # all of summary.json
        super().__init__(summary["views"])

    def conversations(self, view: str | None = None) -> Any:
        """The conversations with their verdicts, as a DataFrame (without pandas, a list of dicts)."""
        outcomes = [o for o in load_outcomes(self.path) if view in (None, o.view)]
        return table([{**vars(o), "messages": messages(o.system, o.turns)} for o in outcomes])

    def compare(self, before: "Evaluation | str | Path") -> dict[str, Any]:
        """The change since another evaluation, by view, paired by item: difference, interval, p."""
        from smopd.evaluation.metrics import compare_evaluations

        other = before.path if isinstance(before, Evaluation) else Path(before)
        return compare_evaluations(other, self.path)

    def to_inspect(self, path: str | Path) -> Path:
        """Write an inspect_ai log (.eval or .json), for `inspect view`."""
        from smopd.evaluation.inspect_log import write_inspect_log

        return write_inspect_log(self.path, Path(path))

    def _lines(self) -> list[tuple[str, str]]:
        lines = []
        for view, v in self.items():
            counts = f"({v['correct']}/{v['total']})"
            lines.append((view.upper(), f"{percent(v['accuracy'])} {interval(v['low'], v['high'])} {counts}"))
        return lines

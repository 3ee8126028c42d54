"""What tables are put together from: numbers that know their runs, rows, and the comparisons of a study.

An id says where a number belongs: table, model, point of the axes, arm, view, what.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, get_args

import numpy as np

from smopd.formatting import finite, p_value, percent, points
from smopd.study.comparison import Comparison, Verdict, compare, family
from smopd.study.results import Cell, Results
from smopd.study.statistics import Clustered, clustered, mean_sd
from smopd.tables import Table, parts_of

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NONE = "\u2013"  # where a row has nothing to print


@dataclass(frozen=True)
class TableNumber:
    """One printed number: its id, the value it was rounded from (a share, not percent), its runs' folders."""

    id: str
    value: float | None  # None for what is not defined, such as a test of one seed
    text: str
    sources: tuple[str, ...]


Entry = tuple["str | TableNumber", ...]  # what one place of a table shows, part by part
EMPTY: Entry = (NONE,)
Show = Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class StudyTable(Table):
    """A table of the report."""

    name: str  # of its LaTeX file, and where the ids of its numbers begin
    section: str
    fold: bool = False  # long: a page shows it on demand

    def numbers(self) -> list[TableNumber]:
        """In reading order."""
        parts = (part for row in self.rows for cell in row.cells for part in parts_of(cell))
        return [part for part in parts if isinstance(part, TableNumber)]


class Place(NamedTuple):
    """An arm at a point of the grid."""

    model: str
    point: str  # see point_label
    arm: str

    @property
    def where(self) -> str:
        """Model and point, for people."""
        return ", ".join(part for part in (self.model, self.point) if part)


Effects = dict[str, dict[Place, Comparison]]  # view -> every arm but the reference
Path = list[object]  # the parts of a number's id


def point_label(axes: dict[str, Any]) -> str:
    """{"train.steps": 40} -> "train.steps = 40"."""

    def shown(value: Any) -> str:  # quoted where it would read like two
        simple = isinstance(value, str) and not set(value) & set(',="')
        return value if simple else json.dumps(value, ensure_ascii=False)

    return ", ".join(f"{name} = {shown(value)}" for name, value in axes.items())


class TableBuilder:
    """Makes the numbers and entries of a study's tables, and its comparisons: every arm against the reference
    at the same model and point, one family of tests a view.
    """

    def __init__(self, results: Results, effects: Effects | None = None) -> None:
        self.results = results
        self.views = sorted(results.views, key=lambda view: view != "sharded")
        self.primary = self.views[0]  # the view the study is about
        self.axes_of = {point_label(axes): axes for axes in results.points()}
        # Every place in the order of the study's file, whether it has results or not.
        self.places = [Place(*each) for each in product(results.models, self.axes_of, results.arms)]
        self.treatments = [place for place in self.places if place.arm != results.reference]
        self.single = len(results.models) * len(self.axes_of) == 1
        self.has_gap = {"full", "sharded"} <= set(results.views)
        self.effects = {view: self._compared(view) for view in results.views} if effects is None else effects

    def _compared(self, view: str) -> dict[Place, Comparison]:
        found = {}
        for place in self.treatments:
            a, b = self.matrices(place, view)
            if len(a) and len(b):
                if a.shape[1] < 2:  # a spread over items needs two of them
                    a, b = a.mean(axis=1), b.mean(axis=1)
                found[place] = compare(a, b, names=(place.arm, self.results.reference))
        return dict(zip(found, family(list(found.values())), strict=True))

    def matrices(self, place: Place, view: str) -> list[np.ndarray]:
        """[seeds, items] of an arm and of the reference."""
        return [self.results.matrix(self.cells(each, view), view) for each in self.both(place)]

    def both(self, place: Place) -> tuple[Place, Place]:
        """The place and the reference at the same model and point."""
        return place, place._replace(arm=self.results.reference)

    def cells(self, place: Place, view: str = "") -> list[Cell]:
        """The runs of a place; with a view, those that played it."""
        cells = self.results.group(place.model, place.arm, self.axes_of[place.point])
        return [cell for cell in cells if not view or view in cell.right]

    def base(self, place: Place, view: str = "") -> list[Cell]:
        """The evaluations of the model before training that belong to a place; with a view, those of it."""
        here = [cell for cell in self.results.base if cell.model == place.model]
        here = [cell for cell in here if cell.axes in ({}, self.axes_of[place.point])]
        return [cell for cell in here if not view or view in cell.right]

    def change(self, place: Place, view: str) -> Clustered | None:
        """An arm against the model before training; None where one of them, or a second item, is missing."""
        cells, base = self.cells(place, view), self.base(place, view)
        if not cells or not base or len(self.results.items) < 2:
            return None
        trained, before = (self.results.matrix(some, view) for some in (cells, base[:1]))
        return clustered(trained, before, fixed=True)

    def group(self, place: Place) -> str:
        """The heading of a block of rows; none where there is only one block."""
        return "" if self.single else place.where

    def path(self, table: str, place: Place, *more: object) -> Path:
        """The beginning of a number's id."""
        return [table, place.model, place.point.replace(" = ", "=").replace(", ", ","), place.arm, *more]

    def one(self, path: Path, cells: Iterable[Cell], key: str, value: float, show: Show) -> Entry:
        """A number alone in its place, with its id and the folders of the cells it comes from."""
        parts = (str(part).replace("%", "%25").replace("/", "%2F") for part in [*path, key] if part != "")
        sources = tuple(dict.fromkeys(cell.source.folder for cell in cells))
        return (TableNumber("/".join(parts), finite(value), show(value), sources),)

    def interval(self, path: Path, cells: list[Cell], low: float, high: float, of: str = "") -> Entry:
        """[low, high] in points."""
        ends = ((f"{of}low", low), (f"{of}high", high))
        first, last = (self.one(path, cells, end, value, points) for end, value in ends)
        return first if finite(low) is None or finite(high) is None else ("[", *first, ", ", *last, "]")

    def spread(self, path: Path, cells: list[Cell], values: Sequence[float], show: Show) -> Entry:
        """Mean and sample standard deviation over seeds; the mean alone for one."""
        if not values:
            return EMPTY
        mean, sd = mean_sd(values)
        shown = self.one(path, cells, "mean", mean, show)
        return shown if len(values) == 1 else (*shown, " ± ", *self.one(path, cells, "sd", sd, show))

    def accuracies(self, path: Path, cells: list[Cell]) -> list[Entry]:
        """Every view's accuracy, and the gap FULL less SHARDED where both are there."""
        entries = []
        for view in self.results.views:
            some = [cell for cell in cells if view in cell.right]
            entries.append(
                self.spread([*path, view], some, [self.results.accuracy(c, view) for c in some], hundred)
            )
        if self.has_gap:
            both = [cell for cell in cells if {"full", "sharded"} <= set(cell.right)]
            gaps = [self.results.accuracy(c, "full") - self.results.accuracy(c, "sharded") for c in both]
            entries.append(self.spread([*path, "gap"], both, gaps, hundred))
        return entries

    def accuracy_heads(self) -> list[str]:
        """What stands over `accuracies`."""
        return [*(f"{view.upper()}, %" for view in self.results.views), *(["gap"] if self.has_gap else [])]

    def pair(self, place: Place, view: str) -> list[Cell]:
        """The runs behind a comparison: the arm's and the reference's."""
        return [cell for each in self.both(place) for cell in self.cells(each, view)]

    def judged(self, place: Place, view: str) -> Entry:
        """The verdict of a row, or why it has none."""
        if place.arm == self.results.reference:
            return ("reference",)
        if found := self.effects[view].get(place):
            return (found.verdict,)
        return ("no reference result" if self.cells(place, view) else "no result",)

    def difference(self, table: str, place: Place, view: str) -> list[Entry]:
        """Difference, clustered interval, Welch p, adjusted p, verdict."""
        found, verdict = self.effects[view].get(place), self.judged(place, view)
        if not found:
            return [EMPTY, EMPTY, EMPTY, EMPTY, verdict]
        path, cells, c = self.path(table, place, view), self.pair(place, view), found.clustered
        low, high = (c.low, c.high) if c else (found.welch_low, found.welch_high)
        return [
            self.one(path, cells, "delta", found.delta, points),
            self.interval(path, cells, low, high),
            self.one(path, cells, "p", found.welch.p_two_sided, p_value),
            self.one(path, cells, "p-holm", found.p_adjusted, p_value),
            verdict,
        ]


def slug(text: str) -> str:
    """Safe in a file name."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())


def hundred(share: float) -> str:
    """A share in percent, without the sign of it."""
    return percent(share).removesuffix("%")


def plain(value: float) -> str:
    """Three decimals; fewer for what is large, two digits for what is small."""
    number = finite(value)
    if number is None:
        return "n/a"
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number + 0.0:.3f}" if abs(number) >= 0.01 or not number else f"{number:.2g}"


def whole(value: float) -> str:
    """A count, or a mean of counts."""
    return "n/a" if finite(value) is None else f"{value:,.0f}"

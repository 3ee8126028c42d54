"""Building blocks of study tables. An id is "table/model/point of the axes/arm/view/key" of a number."""

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, product
from typing import Any, NamedTuple, get_args

import numpy as np

from smopd.formatting import finite, percent, points
from smopd.study.comparison import Comparison, Verdict, compare, family
from smopd.study.plan import slug
from smopd.study.results import Cell, Results
from smopd.study.statistics import Clustered, clustered, mean_sd
from smopd.tables import Row, Table, parts_of

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NONE = "\u2013"  # an empty place in a row


@dataclass(frozen=True)
class TableNumber:
    """A printed number: its id, unrounded value (a share, not percent), text, and the folders of its runs."""

    id: str
    value: float | None  # None if not defined, such as a test of one seed
    text: str
    sources: tuple[str, ...]


Entry = tuple["str | TableNumber", ...]  # the parts of one place of a table
EMPTY: Entry = (NONE,)
TABLES: dict[str, Any] = tomllib.loads(files("smopd.study").joinpath("tables.toml").read_text("utf-8"))
Show = Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class StudyTable(Table):
    name: str  # of its LaTeX file; the ids of its numbers begin with it
    section: str
    fold: bool = False  # long: a page shows it folded

    def numbers(self) -> list[TableNumber]:
        parts = (part for row in self.rows for cell in row.cells for part in parts_of(cell))
        return [part for part in parts if isinstance(part, TableNumber)]


class Place(NamedTuple):
    model: str
    point: str  # see point_label
    arm: str

    @property
    def where(self) -> str:
        return ", ".join(part for part in (self.model, self.point) if part)


class Origin(NamedTuple):
    """The beginning of the ids of some numbers, and the runs they come from."""

    path: tuple[object, ...]
    cells: Sequence[Cell]

    def number(self, key: str, value: float, show: Show) -> Entry:
        parts = [str(part).replace("%", "%25").replace("/", "%2F") for part in (*self.path, key)]
        sources = tuple(dict.fromkeys(cell.source.folder for cell in self.cells))
        return (TableNumber("/".join(filter(None, parts)), finite(value), show(value), sources),)

    def interval(self, low: float, high: float, of: str = "") -> Entry:
        first, last = self.number(f"{of}low", low, points), self.number(f"{of}high", high, points)
        return first if finite(low) is None or finite(high) is None else ("[", *first, ", ", *last, "]")


def mean_entry(path: tuple[object, ...], values: Sequence[tuple[Cell, float]], show: Show) -> Entry:
    """Mean and sample standard deviation over seeds; only the mean for a single seed."""
    if not values:
        return EMPTY
    origin, (mean, sd) = Origin(path, [cell for cell, _ in values]), mean_sd([value for _, value in values])
    shown = origin.number("mean", mean, show)
    return shown if len(values) == 1 else (*shown, " ± ", *origin.number("sd", sd, show))


def point_label(axes: dict[str, Any]) -> str:
    def show(value: Any) -> str:  # quoted if it could be read as several
        simple = isinstance(value, str) and not set(value) & set(',="')
        return value if simple else json.dumps(value, ensure_ascii=False)

    return ", ".join(f"{name} = {show(value)}" for name, value in axes.items())


class TableBuilder:
    """Builds table entries, and compares arms with the reference: one family of tests per view."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.views = sorted(results.views, key=lambda view: view != "sharded")
        self.primary = self.views[0]  # the view the study is about
        self.axes_of = {point_label(axes): axes for axes in results.points()}
        # Every place in the order of the study file, with or without results.
        self.places = [Place(*each) for each in product(results.models, self.axes_of, results.arms)]
        self.treatments = [place for place in self.places if place.arm != results.reference]
        self.single = len(results.models) * len(self.axes_of) == 1
        self.has_gap = {"full", "sharded"} <= set(results.views)
        self.effects = {view: self._compare(view) for view in results.views}

    def _compare(self, view: str) -> dict[Place, Comparison]:
        """Every arm but the reference, if both have results."""
        comparisons = {}
        for place in self.treatments:
            a, b = self.matrices(place, view)
            if len(a) and len(b):
                if a.shape[1] < 2:  # a spread over items needs two
                    a, b = a.mean(axis=1), b.mean(axis=1)
                comparisons[place] = compare(a, b, names=(place.arm, self.results.reference))
        return dict(zip(comparisons, family(list(comparisons.values())), strict=True))

    def table(
        self, kind: str, rows: Sequence[Row], heads: Sequence[str] = (), view: str = "", fold: bool = False
    ) -> StudyTable:
        """A table of tables.toml; `heads` if they depend on the study, `view` if every view has its own."""
        known, name = TABLES[kind], f"{kind}-{slug(view)}" if view else kind
        heads = heads or known["heads"]
        size = max((one.family for one in self.effects[view or self.primary].values()), default=0)
        family = "this one comparison" if size == 1 else f"all {size} comparisons of this view"
        facts = {"reference": self.results.reference, "paper": self.results.paper, "family": family}
        texts = {
            key: known[key].format(view=view.upper(), **facts) for key in ("section", "title", "caption")
        }
        columns = [column % len(heads) for column in known.get("words", ())]
        return StudyTable(name=name, heads=heads, rows=rows, words=columns, fold=fold, **texts)

    def pair(self, place: Place, view: str, other: str = "") -> tuple[list[Cell], list[Cell]]:
        """The runs of an arm and of another, by default its reference, that played the view."""
        other = other or self.results.reference
        return self.cells(place, view), self.cells(place._replace(arm=other), view)

    def matrices(self, place: Place, view: str) -> list[np.ndarray]:
        """Scores [seeds, items] of an arm and of its reference."""
        return [self.results.matrix(cells, view) for cells in self.pair(place, view)]

    def cells(self, place: Place, view: str = "") -> list[Cell]:
        cells = self.results.group(place.model, place.arm, self.axes_of[place.point])
        return [cell for cell in cells if not view or view in cell.right]

    def change(self, place: Place, view: str) -> Clustered | None:
        """An arm against the untrained model; None if either, or a second item, is missing."""
        cells, base = self.pair(place, view, "base")
        if not cells or not base or len(self.results.items) < 2:
            return None
        trained, before = (self.results.matrix(some, view) for some in (cells, base[:1]))
        return clustered(trained, before, fixed=True)

    def group(self, place: Place) -> str:
        """The heading of a block of rows, if there are several."""
        return "" if self.single else place.where

    def label(self, place: Place) -> str:
        return place.arm if self.single else f"{place.arm} ({place.where})"

    def path(self, table: str, place: Place, *more: object) -> tuple[object, ...]:
        return (table, place.model, place.point.replace(" = ", "=").replace(", ", ","), place.arm, *more)

    def compared(self, table: str, place: Place, view: str, other: str = "") -> Origin:
        return Origin(self.path(table, place, view), [*chain(*self.pair(place, view, other))])

    def accuracies(self, path: tuple[object, ...], cells: list[Cell]) -> list[Entry]:
        """Every view's accuracy, and the gap FULL - SHARDED if both were played."""
        of, views = self.results.accuracy, self.results.views
        columns = {view: [(cell, of(cell, view)) for cell in cells if view in cell.right] for view in views}
        if self.has_gap:
            both = [cell for cell in cells if {"full", "sharded"} <= set(cell.right)]
            columns["gap"] = [(cell, of(cell, "full") - of(cell, "sharded")) for cell in both]
        return [mean_entry((*path, name), values, hundred) for name, values in columns.items()]

    def accuracy_heads(self) -> list[str]:
        return [*(f"{view.upper()}, %" for view in self.results.views), *(["gap"] if self.has_gap else [])]

    def row(self, place: Place, entries: Sequence[Entry | str]) -> Row:
        return Row(place.arm, entries, self.group(place))

    def verdict_of(self, place: Place, view: str) -> Entry:
        if place.arm == self.results.reference:
            return ("reference",)
        if effect := self.effects[view].get(place):
            return (effect.verdict,)
        return ("no reference result" if self.cells(place, view) else "no result",)


def hundred(share: float) -> str:
    """A share in percent, without the percent sign."""
    return percent(share).removesuffix("%")


def plain(value: float) -> str:
    """Three decimals; none for large values, two significant digits for small ones."""
    if finite(value) is None or abs(value) >= 1000:
        return whole(value)
    return f"{value + 0.0:.3f}" if abs(value) >= 0.01 or not value else f"{value:.2g}"


def whole(value: float) -> str:
    return "n/a" if finite(value) is None else f"{value:,.0f}"

"""What tables are put together from: numbers that know their runs, rows, and the comparisons of a study.

An id says where a number belongs: table, model, point of the axes, arm, view, what. It leaves out the tables
themselves (tables.py, tables_more.py) and how they look (render_html.py, render_text.py).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from smopd.formatting import finite, p_value, percent, points
from smopd.study.comparison import Comparison, compare, family
from smopd.study.results import Cell, Results
from smopd.study.statistics import mean_sd

VERDICTS = ("gain", "loss", "inside run-to-run variation", "single seed")
NONE = "\u2013"  # where a row has nothing to print


@dataclass(frozen=True)
class Number:
    """One printed number: its id, the value it was rounded from (a share, not percent), its runs' folders."""

    id: str
    value: float | None  # None for what is not defined, such as a test of one seed
    text: str
    sources: tuple[str, ...]


Entry = tuple["str | Number", ...]  # what one place of a table shows, part by part
EMPTY: Entry = (NONE,)


@dataclass(frozen=True)
class Row:
    """A line of a table; neighbours of one group stand under its heading."""

    label: str
    entries: tuple[Entry, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A table before it takes a form. The first head is that of the labels."""

    name: str  # of its LaTeX file, and where the ids of its numbers begin
    section: str
    title: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    words: tuple[int, ...] = ()  # columns that hold words, not numbers
    fold: bool = False  # long: a page shows it on demand

    def numbers(self) -> list[Number]:
        """In reading order."""
        return [
            part for row in self.rows for entry in row.entries for part in entry if isinstance(part, Number)
        ]


class Place(NamedTuple):
    """An arm at a point of the grid."""

    model: str
    point: str
    arm: str


Effects = dict[str, dict[Place, Comparison]]  # view -> every arm but the reference
Path = list[object]  # the parts of a number's id


def point_label(axes: dict[str, Any]) -> str:
    """{"train.steps": 40} -> "train.steps = 40"."""

    def told(value: Any) -> str:  # quoted where it would read like two
        simple = isinstance(value, str) and not set(value) & set(',="')
        return value if simple else json.dumps(value, ensure_ascii=False)

    return ", ".join(f"{name} = {told(value)}" for name, value in axes.items())


def primary_view(results: Results) -> str:
    """The view the study is about."""
    return "sharded" if "sharded" in results.views else results.views[0]


def ordered_views(results: Results) -> list[str]:
    """The primary view first."""
    return sorted(results.views, key=lambda view: view != primary_view(results))


def grid(results: Results) -> list[tuple[str, dict[str, Any], str]]:
    """Every (model, point, arm) of the study in the order of its file, whether it has results or not."""
    return [
        (model, point, arm) for model in results.models for point in results.points() for arm in results.arms
    ]


def with_view(cells: list[Cell], view: str) -> list[Cell]:
    """Those that were evaluated under a view."""
    return [cell for cell in cells if view in cell.right]


def compare_all(results: Results) -> Effects:
    """Every arm against the reference at the same model and point; one family of tests a view."""
    found: Effects = {}
    for view in results.views:
        places, made = [], []
        for model, point, arm in grid(results):
            a, b = (with_view(results.group(model, name, point), view) for name in (arm, results.reference))
            if arm != results.reference and a and b:
                places.append(Place(model, point_label(point), arm))
                x, y = results.matrix(a, view), results.matrix(b, view)
                if x.shape[1] < 2:  # a spread over items needs two of them
                    x, y = x.mean(axis=1), y.mean(axis=1)
                made.append(compare(x, y, names=(arm, results.reference)))
        found[view] = dict(zip(places, family(made), strict=True)) if made else {}
    return found


class Maker:
    """Makes the numbers and entries of a study's tables; every comparison is made once, here."""

    def __init__(self, results: Results, effects: Effects | None = None) -> None:
        self.results = results
        self.effects = compare_all(results) if effects is None else effects
        self.primary = primary_view(results)
        self.single = len(results.models) * len(results.points()) == 1
        self.has_gap = {"full", "sharded"} <= set(results.views)

    def group(self, model: str, point: dict[str, Any]) -> str:
        """The heading of a block of rows; none where there is only one block."""
        return "" if self.single else ", ".join(part for part in (model, point_label(point)) if part)

    def path(self, table: str, model: str, point: dict[str, Any], *more: object) -> Path:
        """The beginning of a number's id."""
        return [table, model, point_label(point).replace(" = ", "=").replace(", ", ","), *more]

    def number(self, path: Sequence[object], value: float | None, text: str, cells: Iterable[Cell]) -> Number:
        """A number with its id and the folders of the cells it comes from."""
        name = "/".join(str(part).replace("%", "%25").replace("/", "%2F") for part in path if part != "")
        return Number(name, finite(value), text, tuple(dict.fromkeys(cell.source.folder for cell in cells)))

    def one(
        self, path: Path, key: str, value: float, show: Callable[[float], str], cells: Iterable[Cell]
    ) -> Entry:
        """A number alone in its place."""
        return (self.number([*path, key], value, show(value), cells),)

    def interval(
        self, path: Path, keys: tuple[str, str], low: float, high: float, cells: list[Cell]
    ) -> Entry:
        """[low, high] in points."""
        ends = [
            self.number([*path, key], value, points(value), cells)
            for key, value in zip(keys, (low, high), strict=True)
        ]
        return (
            ("[", ends[0], ", ", ends[1], "]") if all(end.value is not None for end in ends) else (ends[0],)
        )

    def spread(
        self, path: Path, values: Sequence[float], show: Callable[[float], str], cells: list[Cell]
    ) -> Entry:
        """Mean and sample standard deviation over seeds; the mean alone for one."""
        if not values:
            return EMPTY
        mean, sd = mean_sd(values)
        shown = self.one(path, "mean", mean, show, cells)
        return shown if len(values) == 1 else (*shown, " ± ", *self.one(path, "sd", sd, show, cells))

    def accuracies(self, path: Path, cells: list[Cell]) -> list[Entry]:
        """Every view's accuracy, and the gap FULL less SHARDED where both are there."""
        runs, entries = self.results.runs, []
        for view in self.results.views:
            some = with_view(cells, view)
            entries.append(self.spread([*path, view], [c.accuracy(view, runs) for c in some], hundred, some))
        if self.has_gap:
            both = with_view(with_view(cells, "full"), "sharded")
            gaps = [c.accuracy("full", runs) - c.accuracy("sharded", runs) for c in both]
            entries.append(self.spread([*path, "gap"], gaps, hundred, both))
        return entries

    def accuracy_heads(self) -> list[str]:
        """What stands over `accuracies`."""
        return [*(f"{view.upper()}, %" for view in self.results.views), *(["gap"] if self.has_gap else [])]

    def effect(self, model: str, point: dict[str, Any], arm: str, view: str) -> Comparison | None:
        """The comparison with the reference; None for itself and where one of the two has no result."""
        return self.effects[view].get(Place(model, point_label(point), arm))

    def pair(self, model: str, point: dict[str, Any], arm: str, view: str) -> list[Cell]:
        """The runs behind a comparison: the arm's and the reference's."""
        return [
            c
            for name in (arm, self.results.reference)
            for c in with_view(self.results.group(model, name, point), view)
        ]

    def judged(self, model: str, point: dict[str, Any], arm: str, view: str) -> Entry:
        """The verdict of a row, or why it has none."""
        if arm == self.results.reference:
            return ("reference",)
        found = self.effect(model, point, arm, view)
        if found:
            return (found.verdict,)
        return (
            "no result"
            if not with_view(self.results.group(model, arm, point), view)
            else "no reference result",
        )

    def difference(self, table: str, model: str, point: dict[str, Any], arm: str, view: str) -> list[Entry]:
        """Difference, clustered interval, Welch p, adjusted p, verdict."""
        found, verdict = self.effect(model, point, arm, view), self.judged(model, point, arm, view)
        if not found:
            return [EMPTY, EMPTY, EMPTY, EMPTY, verdict]
        path, cells = self.path(table, model, point, arm, view), self.pair(model, point, arm, view)
        low, high = (
            (found.clustered.low, found.clustered.high)
            if found.clustered
            else (found.welch_low, found.welch_high)
        )
        return [
            self.one(path, "delta", found.delta, points, cells),
            self.interval(path, ("low", "high"), low, high, cells),
            self.one(path, "p", found.welch.p_two_sided, p_value, cells),
            self.one(path, "p-holm", found.p_adjusted, p_value, cells),
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
    return (
        f"{number:,.0f}"
        if abs(number) >= 1000
        else f"{number + 0.0:.3f}"
        if abs(number) >= 0.01 or not number
        else f"{number:.2g}"
    )


def whole(value: float) -> str:
    """A count, or a mean of counts."""
    return "n/a" if finite(value) is None else f"{value:,.0f}"

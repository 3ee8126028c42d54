"""What every form of a study report is made from: tables, figures, sentences, and the numbered runs.

The forms themselves are in render_html.py and render_text.py; writing and checking files in report.py.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from smopd.study.drawing import Figure
from smopd.study.results import Cell, Results
from smopd.study.table_parts import Number, Table, point_label

_HASH = re.compile(r"\b[0-9a-f]{16,}\b")


@dataclass(frozen=True)
class Document:
    """A study report before it takes a form."""

    results: Results
    tables: list[Table]
    figures: list[Figure]
    summary: list[str]  # what the study found, see tables.verdict_lines
    sentences: list[str]  # one a comparison

    @cached_property
    def numbers(self) -> list[Number]:
        """Every number of every table, once."""
        found: dict[str, Number] = {}
        for table in self.tables:
            for number in table.numbers():
                if found.setdefault(number.id, number) != number:
                    raise AssertionError(f"two numbers have the id {number.id}")
        return list(found.values())

    @cached_property
    def runs(self) -> list[Cell]:
        """Base models first, then the cells; a run's number is its place here, from 1."""
        return [*self.results.base, *self.results.cells]

    @cached_property
    def places(self) -> dict[str, int]:
        """Run folder -> the run's number."""
        return {cell.source.folder: place for place, cell in enumerate(self.runs, 1)}

    @cached_property
    def sets(self) -> dict[tuple[str, ...], int]:
        """Every set of runs that some number was computed from, numbered from 1 in order of its first use."""
        folders = dict.fromkeys(number.sources for number in self.numbers)
        return {each: place for place, each in enumerate(folders, 1)}

    def subtitle(self) -> str:
        """The size of the study in a line."""
        r = self.results
        axes = "".join(f", {len(values)} values of {setting}" for setting, values in r.axes.items())
        played = f", each played {r.runs} times" if r.runs > 1 else ""
        grid = f"{_count(r.models, 'model')}, {_count(r.arms, 'arm')}{axes}, {_count(r.seeds, 'seed')}"
        items = f"{_count(r.items, 'item')} of {r.data}{played}"
        return f"{r.name}: {grid}; {items}; every arm against {r.reference}"

    def provenance(self, full: bool = False) -> tuple[list[str], list[list[str]]]:
        """(heads, rows): where every cell comes from; `full` keeps hashes whole."""
        heads = ["run", "cell", "folder", "seed", "config", "data", "trained by", "evaluated by", "adapter"]
        rows = []
        for place, cell in enumerate(self.runs, 1):
            s = cell.source
            name = ", ".join(part for part in (cell.model, cell.arm, point_label(cell.axes)) if part)
            code = (s.trained_by or "", s.evaluated_by, s.adapter or "")
            seed = "" if s.seed is None else str(s.seed)
            row = [str(place), name, s.folder, seed, s.config, s.data, *code]
            rows.append(row if full else [*row[:3], *map(short, row[3:])])
        return heads, rows

    def run_list(self, number: Number) -> str:
        """The runs of a number, by their numbers: "runs 1-5, 11"."""
        places = sorted({self.places[folder] for folder in number.sources})
        return ("run " if len(places) == 1 else "runs ") + ranges(places)


def short(text: str) -> str:
    """Hashes cut to twelve digits."""
    return _HASH.sub(lambda found: found[0][:12], text)


def ranges(places: Iterable[int]) -> str:
    """1, 2, 3, 5 -> "1-3, 5"."""
    parts = []
    for _, stretch in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
        some = [place for _, place in stretch]
        parts.append(f"{some[0]}-{some[-1]}" if len(some) > 2 else ", ".join(map(str, some)))
    return ", ".join(parts)


def _count(things: list[Any], name: str) -> str:
    return f"{len(things):,} {name}{'' if len(things) == 1 else 's'}"

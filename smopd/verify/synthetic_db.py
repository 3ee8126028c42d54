"""Small databases for a schema that tell a wrong query from a right one, for lack of the real ones.

Rows hold a query's constants and near misses, ties and duplicates, parents without children, NULLs where
allowed, groups as large as the thresholds. Keys hold. It leaves out CHECK constraints and defaults.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smopd.verify.sql_schema import Facts, Key, Schema, Table

Value = str | int | float | None
Rows = list[dict[str, Value]]
_WORDS = ["ash", "birch", "Cedar", "dogwood", "elm", "fir", "Ginkgo", "hazel", "iris", "kapok"]
_WORDS += ["larch", "Maple", "oak"]
_MOST_ROWS = 300


@dataclass(frozen=True)
class Profile:
    """The character of one database."""

    rows: int  # per table that the query names; 0 leaves them all empty
    variety: int  # distinct values per column beside the planted ones
    planted: float  # how often a value is a constant of the query or a near miss
    nulls: float
    childless: bool = False  # tables with foreign keys stay empty


PROFILES = (
    Profile(14, 5, 0.5, 0.0), Profile(20, 3, 0.75, 0.0), Profile(14, 6, 0.5, 0.15), Profile(30, 25, 0.3, 0.0),
    Profile(9, 2, 0.6, 0.1), Profile(24, 4, 0.9, 0.0), Profile(4, 6, 0.6, 0.0), Profile(40, 8, 0.6, 0.05),
)  # fmt: skip
EMPTY, CHILDLESS = Profile(0, 1, 0.0, 0.0), Profile(9, 5, 0.6, 0.0, childless=True)


def synthesise(
    schema: Schema, facts: Facts, profile: Profile, draw: random.Random
) -> dict[str, list[tuple[Value, ...]]]:
    """Rows for every table of the schema, in the order of its columns."""
    pools = _Pools(schema, facts, profile, draw)
    central = set(facts.tables)
    while more := {p for n in central for p, _ in schema[n].foreign.values()} - central:
        central |= more  # parents too: the children's keys come from them
    done: dict[str, Rows] = {}
    for name in _parents_first(schema):
        table = schema[name]
        wanted = profile.rows if name in central else min(profile.rows, 4)
        if name in central and profile.rows > 9:  # enough for the thresholds, except in the small databases
            wanted = min(_MOST_ROWS, max(wanted, 3 * facts.most))
        wanted = 0 if profile.childless and table.foreign else wanted
        done[name] = _rows(name, table, draw.randint((wanted + 1) // 2, wanted), done, pools)
    return {name: [tuple(row[c] for c in schema[name].columns) for row in done[name]] for name in done}


def _parents_first(schema: Schema) -> list[str]:
    order: list[str] = []
    waiting = dict(schema)
    while waiting:
        parents = {name: {parent for parent, _ in t.foreign.values()} - {name} for name, t in waiting.items()}
        free = [name for name in waiting if not parents[name] & waiting.keys()]
        for name in free or [next(iter(waiting))]:  # where keys go round in a circle, start anywhere
            order.append(name)
            del waiting[name]
    return order


def _rows(name: str, table: Table, count: int, done: Mapping[str, Rows], pools: "_Pools") -> Rows:
    draw = pools.draw
    sources: dict[str, Sequence[Value]] = {}
    for column, (parent, key) in table.foreign.items():
        if parent not in done and parent != name:
            continue  # keys that go round in a circle: this one comes from the pool
        values = [v for row in done.get(parent, ()) if (v := row[key]) is not None]
        draw.shuffle(values)
        # A key that the query asks for has many children; some parents have as many as a threshold asks for;
        # the last stay without.
        values.sort(key=lambda v: not pools.exact((name, column), v))
        enough = 3 * count // (pools.most + 1)
        sources[column] = values[: max(1, min(len(values) * 2 // 3, enough))]
    singles = {u[0] for u in table.unique if len(u) == 1}
    fresh = {c: pools.distinct((name, c), count) for c in singles - sources.keys()}
    rows, seen = Rows(), set[tuple[Any, ...]]()
    for _ in range(count):
        # A row to repeat, so that two differ in their keys at most.
        old = draw.choice(rows) if rows and draw.random() < 0.2 else None
        row: dict[str, Value] = {}
        pools.fitting = draw.random() < pools.profile.planted / 2
        for column in table.columns:
            filled = column in table.required or (name, column) in pools.solid or column in singles
            if column in fresh:
                row[column] = fresh[column].pop()
            elif old is not None and draw.random() < (0.5 if column in sources else 0.9):
                row[column] = old[column]
            elif not filled and draw.random() < pools.profile.nulls:
                row[column] = None
            elif column in sources:
                parent, key = table.foreign[column]
                choices = (parent == name and [r[key] for r in rows]) or sources[column]
                # Squared, so that some have many children.
                row[column] = choices[int(len(choices) * draw.random() ** 2)] if choices else None
            else:
                row[column] = pools.pick((name, column))
        if any(row[c] is None for c in sources if c in table.required):
            continue  # a required parent that does not exist
        keys = {(u, tuple(row[c] for c in u)) for u in table.unique if all(row[c] is not None for c in u)}
        if not keys & seen:
            seen |= keys
            rows.append(row)
    return rows


class _Pools:
    """The values each column draws from: columns that are compared with each other draw from one pool."""

    def __init__(self, schema: Schema, facts: Facts, profile: Profile, draw: random.Random) -> None:
        self.profile, self.draw, self.solid, self.most = profile, draw, facts.solid, facts.most
        self._group: dict[Key, Key] = {(n, c): (n, c) for n, t in schema.items() for c in t.columns}
        for name, table in schema.items():
            for column, target in table.foreign.items():
                self._join([(name, column), target])
        for link in sorted(map(sorted, facts.links)):
            self._join([k for k in link if k in self._group])
        self._kinds: dict[Key, str] = {}
        ranks = ("text", "date", "real", "int")
        for name, table in schema.items():
            for column, kind in table.columns.items():
                group = self._find((name, column))
                kind = "real" if (name, column) in facts.numeric and kind in ("text", "date") else kind
                self._kinds[group] = max(kind, self._kinds.get(group, kind), key=ranks.index)
        self.fitting = False  # whether a row should satisfy all comparisons with constants, or each by chance
        self._planted, self._exact, self._filler = (dict[Key, list[Value]]() for _ in range(3))
        for key, constant, pattern in sorted(facts.constants):
            group = self._find(key)
            near = _matches(constant, draw) if pattern else _near(constant, self._kinds[group])
            self._planted.setdefault(group, []).extend(near)
            self._exact.setdefault(group, []).extend(near[:4] if pattern else near[:1])

    def _find(self, key: Key) -> Key:
        while self._group[key] != key:
            key = self._group[key]
        return key

    def _join(self, keys: Sequence[Key]) -> None:
        for key in keys[1:]:
            self._group[self._find(key)] = self._find(keys[0])

    def pick(self, key: Key) -> Value:
        group = self._find(key)
        planted = self._planted.get(group)
        if planted and self.fitting and self.draw.random() < 0.9:
            return self.draw.choice(self._exact[group])
        if planted and self.draw.random() < self.profile.planted:
            return self.draw.choice(planted)
        if group not in self._filler:
            # Ties in one column where another has few.
            size = int(self.profile.variety * self.draw.choice((0.5, 1, 1, 4)))
            self._filler[group] = [self._fill(group, i) for i in range(max(2, size))]
        return self.draw.choice(self._filler[group])

    def exact(self, key: Key, value: Value) -> bool:
        return value in self._exact.get(self._find(key), ())

    def distinct(self, key: Key, count: int) -> list[Value]:
        group = self._find(key)
        planted = list(dict.fromkeys([*self._planted.get(group, ()), *self._filler.get(group, ())]))
        self.draw.shuffle(planted)
        kind, start = self._kinds[group], self.draw.randint(1, 5)
        others: list[Value] = [f"{_WORDS[i % len(_WORDS)]}{i}" for i in range(2 * count)]
        if kind in ("int", "real"):
            others = [i + start for i in range(2 * count)]
        self.draw.shuffle(others)
        values = list(dict.fromkeys([*planted[: (count + 1) // 2], *others]))[:count]
        self.draw.shuffle(values)
        # For columns that are joined to it without a foreign key.
        self._filler.setdefault(group, []).extend(values)
        return values

    def _fill(self, group: Key, index: int) -> Value:
        kind, draw = self._kinds[group], self.draw
        if kind in ("int", "real"):
            near = [v for v in self._planted.get(group, ()) if isinstance(v, (int, float))]
            number: int | float = draw.randint(1, 2 * self.profile.variety)
            if near:
                number = draw.choice(near) + draw.choice((-1, 1)) * draw.choice((2, 3, 10, 50))
            return number + draw.choice((0, 0.25, 0.5)) if kind == "real" else int(number)
        if kind == "date":
            return f"{draw.randint(1960, 2020)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        return draw.choice(_WORDS) if index else f"{draw.choice(_WORDS)} {draw.choice(_WORDS)}"


def _near(text: str, kind: str) -> list[Value]:
    try:
        number = float(text)
        exact: int | float = int(number) if number.is_integer() else number
    except (ValueError, OverflowError):
        near: list[Value] = [text, text, text.swapcase(), text.lower(), text + "s", text[:-1]]
        if len(text) > 3 and text[-1].isdigit():  # a date: the days around it
            near += [text[:-1] + str((int(text[-1]) + step) % 10) for step in (1, 9)]
        return near
    if kind in ("int", "real"):
        return [exact, exact, exact - 1, exact + 1, *((exact + 0.5, exact - 0.5) if kind == "real" else ())]
    days: list[Value] = [f"{exact}-06-15", f"{exact}-12-31"] if 1000 <= exact < 3000 else []
    return [text, text, str(exact - 1), str(exact + 1), *days]


def _matches(pattern: str, draw: random.Random) -> list[Value]:
    """Texts that match a LIKE (or GLOB) pattern, and texts that nearly do."""
    wild = {"%": ("", "oak ", " elm", "x"), "*": ("", "oak", "x"), "_": ("a", "Z"), "?": ("a", "Z")}
    texts = ["".join(draw.choice(wild.get(c, (c,))) for c in pattern) for _ in range(4)]
    core = re.sub(r"[%*]", "", pattern).replace("_", "a").replace("?", "a")
    around = [f"w{core}", f"{core}w", f"w {core} w"]
    return [*texts, core, core.swapcase(), core[:-1], core[1:], *around, core[: len(core) // 2]]

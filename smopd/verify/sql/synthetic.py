"""Small synthetic databases that tell a wrong query from a right one when the real ones are missing.

A share of the rows satisfies the query, together with the rows they are joined to, so that its result is
seldom trivial; the rest are near misses, ties, duplicates, parents without children, and groups as large as
the thresholds. Keys hold. NULLs occur only where the schema allows them and the query should see them
(QueryFacts.nulls). Columns that are compared with each other draw from one pool: constants of the query,
values near them, and others. CHECK constraints and defaults are ignored.
"""

import operator as op
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from smopd.verify.sql.facts import QueryFacts
from smopd.verify.sql.query import Tables
from smopd.verify.sql.schema import Key, Schema

Value = str | int | float | None
Row = dict[str, Value]
T = TypeVar("T")
_Compare = Callable[[Any, Any], bool]
_COMPARE: dict[str, _Compare] = {"=": op.eq, "!=": op.ne, "<": op.lt, "<=": op.le, ">": op.gt, ">=": op.ge}
_MOST_ROWS = 300
_WORDS = ["ash", "birch", "Cedar", "dogwood", "elm", "fir", "Ginkgo", "hazel", "iris", "kapok"]
_WORDS += ["larch", "Maple", "oak"]


@dataclass(frozen=True)
class Profile:
    rows: int  # per table that the query names; 0 leaves all tables empty
    variety: int  # distinct values per column besides the planted ones
    planted: float  # probability that a value is a constant of the query or a near miss
    nulls: float  # probability of a NULL in a column that should hold some
    fitting: float = 0.3  # the share of rows that satisfy all comparisons with constants
    childless: bool = False  # tables with foreign keys stay empty
    wide: bool = False  # many distinct rows and groups, for a LIMIT to cut


PROFILES = (
    Profile(14, 5, 0.5, 0.0), Profile(20, 3, 0.75, 0.0), Profile(14, 6, 0.5, 0.2), Profile(30, 25, 0.3, 0.0),
    Profile(9, 2, 0.6, 0.2), Profile(24, 4, 0.9, 0.0, fitting=0.8), Profile(4, 6, 0.6, 0.0, fitting=0.6),
    Profile(36, 9, 0.6, 0.1),
)  # fmt: skip
EMPTY, CHILDLESS = Profile(0, 1, 0.0, 0.0), Profile(9, 5, 0.6, 0.0, childless=True)
WIDE = Profile(40, 40, 0.3, 0.0, fitting=0.8, wide=True)


# --- values
class Pools:
    def __init__(self, schema: Schema, facts: QueryFacts, profile: Profile, draw: random.Random) -> None:
        self.schema, self.facts, self.profile, self.draw = schema, facts, profile, draw
        keys = [(name, column) for name, table in schema.items() for column in table.columns]
        links = [[(n, c), target] for n, table in schema.items() for c, target in table.foreign.items()]
        self._group = _group_columns(keys, [*links, *sorted(map(sorted, facts.links))])
        self._kinds: dict[Key, str] = {}
        ranks = ("text", "date", "real", "int")
        for name, table in schema.items():
            for column, kind in table.columns.items():
                group = self._group[name, column]
                kind = "real" if (name, column) in facts.numeric and kind in ("text", "date") else kind
                self._kinds[group] = max(kind, self._kinds.get(group, kind), key=ranks.index)
        self._planted, self._fits, self._filler = (dict[Key, list[Value]]() for _ in range(3))
        self._plant()
        # In half of the databases fitting rows sort first or last; in half DISTINCT columns hold duplicates.
        self._few = {key for key in sorted(facts.once) if draw.random() < 0.5 and not profile.wide}
        self._extreme = {key: largest for key, largest in sorted(facts.extremes) if draw.random() < 0.5}

    def _plant(self) -> None:
        asked: dict[Key, list[tuple[str, str]]] = {}
        for key, operator, constant in sorted(self.facts.constants):
            asked.setdefault(self._group[key], []).append((operator, constant))
        for group, constants in asked.items():
            patterns = {text: _matches(text, self.draw) for operator, text in constants if "like" in operator}
            near = [v for o, text in constants for v in patterns.get(text) or _vary(text, self._kinds[group])]
            numbers = [v for v in near if isinstance(v, (int, float))]
            near += [(min(numbers) + max(numbers)) // 2] if len(constants) > 1 and numbers else []
            self._planted[group] = near
            every = [v for v in near if all(_meets(v, *constant, patterns) for constant in constants)]
            some = [v for v in near if any(_meets(v, *constant, patterns) for constant in constants)]
            self._fits[group] = every or some or near

    def one(self, values: Sequence[T]) -> T:
        """Draw one of some values; random.choice takes three times as long."""
        return values[int(len(values) * self.draw.random())]

    def pick(self, key: Key, fitting: bool = False) -> Value:
        """Draw a value for a column; if it is to fit, mostly one that satisfies the query."""
        group = self._group[key]
        planted = self._planted.get(group)
        if planted and fitting and self.draw.random() < 0.95:
            return self.one(self._fits[group])
        few = key in self._few and self.draw.random() < 0.6
        if planted and self.draw.random() < self.profile.planted:
            return self.one(planted)
        if group not in self._filler:
            # Some columns have many ties, others few.
            size = min(self.profile.rows, int(self.profile.variety * self.one((0.5, 1, 1, 4))))
            self._filler[group] = [self._fill(group, i) for i in range(max(2, size))]
        if fitting and key in self._extreme:
            return self._pick_beyond(group, self._extreme[key])
        return self._filler[group][0] if few else self.one(self._filler[group])

    def asked(self, key: Key) -> bool:
        return self._group[key] in self._fits

    def fits(self, key: Key, value: Value) -> bool:
        return value in self._fits.get(self._group[key], ())

    def distinct(self, key: Key, count: int) -> list[Value]:
        group = self._group[key]
        planted = list(dict.fromkeys([*self._planted.get(group, ()), *self._filler.get(group, ())]))
        self.draw.shuffle(planted)
        start, numeric = self.draw.randint(1, 5), self._kinds[group] in ("int", "real")
        others = [i + start if numeric else f"{_WORDS[i % len(_WORDS)]}{i}" for i in range(2 * count)]
        self.draw.shuffle(others)
        values = list(dict.fromkeys([*planted[: (count + 1) // 2], *others]))[:count]
        self.draw.shuffle(values)
        self._filler.setdefault(group, []).extend(values)  # for columns joined to it without a foreign key
        return values

    def _pick_beyond(self, group: Key, largest: bool) -> Value:
        """Draw a value equal to the column's extreme, or beyond it."""
        values, step = self._filler[group], self.one((0, 1, 2, 3))
        numbers = [v for v in values if isinstance(v, (int, float))]
        if numbers:
            return max(numbers) + step if largest else min(numbers) - step
        text = max(map(str, values)) if largest else min(map(str, values))
        if self._kinds[group] == "date":
            return f"{2021 + step if largest else 1959 - step}{text[4:]}"
        return f"{'z' if largest else 'A'}{step} {text}" if step else text

    def _fill(self, group: Key, index: int) -> Value:
        kind, draw, one = self._kinds[group], self.draw, self.one
        if kind in ("int", "real"):
            near = [v for v in self._planted.get(group, ()) if isinstance(v, (int, float))]
            number: int | float = draw.randint(1, 2 * self.profile.variety)
            if near:
                number = one(near) + one((-1, 1)) * one((2, 3, 10, 50))
            return number + one((0, 0.25, 0.5)) if kind == "real" else int(number)
        if kind == "date":
            return f"{draw.randint(1960, 2020)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        if self.profile.wide:
            return f"{one(_WORDS)}{index}"
        return one(_WORDS) if index else f"{one(_WORDS)} {one(_WORDS)}"


def _group_columns(keys: Sequence[Key], links: Sequence[Sequence[Key]]) -> dict[Key, Key]:
    """Map every column to a representative of all columns that it is linked with, also indirectly."""
    group = {key: key for key in keys}
    for link in links:
        first, *others = dict.fromkeys(group[key] for key in link if key in group) or [None]
        if first and others:
            group = {key: first if name in others else name for key, name in group.items()}
    return group


def _meets(value: Value, operator: str, text: str, patterns: Mapping[str, list[Value]]) -> bool:
    if "like" in operator:
        return (value in patterns[text][:4]) == (operator == "like")
    constant: Value = text
    if isinstance(value, (int, float)):
        try:
            constant = float(text)
        except ValueError:
            return operator == "!="
    return _COMPARE[operator](value, constant)


def _vary(text: str, kind: str) -> list[Value]:
    """Return a constant and near values that tell similar comparisons apart; none differs in case alone."""
    try:
        number = float(text)
        exact: int | float = int(number) if number.is_integer() else number
    except (ValueError, OverflowError):
        near: list[Value] = [text, text, text, f"{text}s", f"w{text}", text[:-1]]
        if len(text) > 3 and text[-1].isdigit():  # a date: the days around it
            near += [text[:-1] + str((int(text[-1]) + step) % 10) for step in (1, 9)]
        return near
    if kind in ("int", "real"):
        return [exact, exact, exact - 1, exact + 1, *((exact + 0.5, exact - 0.5) if kind == "real" else ())]
    days: list[Value] = [f"{exact}-06-15", f"{exact}-12-31"] if 1000 <= exact < 3000 else []
    return [text, text, str(exact - 1), str(exact + 1), *days]


def _matches(pattern: str, draw: random.Random) -> list[Value]:
    """Return four texts that match a LIKE or GLOB pattern, then texts that match or nearly match."""
    wild = {"%": ("", "oak ", " elm", "x"), "*": ("", "oak", "x"), "_": ("a", "Z"), "?": ("a", "Z")}
    texts = ["".join(draw.choice(wild.get(c, (c,))) for c in pattern) for _ in range(4)]
    core = re.sub(r"[%*]", "", pattern).replace("_", "a").replace("?", "a")
    around = [f"w{core}", f"{core}w", f"w {core} w"]
    return [*texts, core, core.swapcase(), core[:-1], core[1:], *around, core[: len(core) // 2]]


# --- rows
def synthesise(schema: Schema, facts: QueryFacts, profile: Profile, draw: random.Random) -> Tables:
    pools = Pools(schema, facts, profile, draw)
    central = set(facts.tables)
    while more := {p for n in central for p, _ in schema[n].foreign.values()} - central:
        central |= more  # parents too: their children's keys come from them
    done: dict[str, _Rows] = {}
    for name in _parents_first(schema):
        table = schema[name]
        wanted = profile.rows if name in central else min(profile.rows, 4)
        if name in central and profile.rows > 9:  # enough for the thresholds, except in the small databases
            wanted = min(_MOST_ROWS, max(wanted, 3 * facts.most, 3 * facts.limit))
        if name in central and profile.wide and table.foreign:
            wanted = min(_MOST_ROWS, 2 * wanted)
        wanted = 0 if profile.childless and table.foreign else wanted
        done[name] = _Rows(name, draw.randint((wanted + 1) // 2, wanted), done, pools)
    return {name: (part.table.columns, [tuple(r.values()) for r in part.rows]) for name, part in done.items()}


def _parents_first(schema: Schema) -> list[str]:
    order: list[str] = []
    waiting = dict(schema)
    while waiting:
        parents = {name: {parent for parent, _ in t.foreign.values()} - {name} for name, t in waiting.items()}
        free = [name for name in waiting if not parents[name] & waiting.keys()]
        for name in free or [next(iter(waiting))]:  # if foreign keys are circular, start anywhere
            order.append(name)
            del waiting[name]
    return order


class _Rows:
    """The rows of one table; those in `fitting` are meant to satisfy the query."""

    def __init__(self, name: str, count: int, done: Mapping[str, "_Rows"], pools: Pools) -> None:
        self.rows, self.fitting = list[Row](), list[Row]()
        self.name, self.pools, self.draw = name, pools, pools.draw
        self.table = table = pools.schema[name]
        names = [(c,) for t, c in sorted(pools.facts.names) if t == name]
        self.unique = [*table.unique, *(u for u in names if u not in table.unique)]
        self.sources: dict[str, Sequence[Value]] = {}  # the values of each foreign key
        self.partners: dict[str, list[Value]] = {}  # values that join fitting rows with each other
        for column, (parent, key) in table.foreign.items():
            if parent in done:  # else foreign keys are circular, and its values come from the pool
                self._read_parent(column, done[parent], key, count)
            elif parent == name:
                self.sources[column] = ()
        for link in sorted(map(sorted, pools.facts.links)):  # columns that the query compares
            others = [key for key in link if key[0] != name and key[0] in done]
            values = [row[c] for t, c in others for row in done[t].fitting if row[c] is not None]
            for column in (c for t, c in link if t == name and values):
                self.partners.setdefault(column, values)
        singles = [u[0] for u in self.unique if len(u) == 1]
        self.fresh = {c: pools.distinct((name, c), count) for c in singles if c not in self.sources}
        self.asked = [c for c in table.columns if c not in self.sources and pools.asked((name, c))]
        self.nullable = {c for t, c in pools.facts.nulls if t == name} - table.required - set(singles)
        self._make(count)

    def _read_parent(self, column: str, parent: "_Rows", key: str, count: int) -> None:
        values = [v for row in parent.rows if (v := row[key]) is not None]
        self.draw.shuffle(values)
        # Parents that the query asks for come first; few get children, so that some reach a COUNT threshold.
        values.sort(key=lambda v: not self.pools.fits((self.name, column), v))
        enough = (2 if self.pools.profile.wide else 3) * count // (self.pools.facts.most + 1)
        self.sources[column] = values[: max(1, min(len(values) * 2 // 3, enough))]
        self.partners[column] = [v for row in parent.fitting if (v := row[key]) is not None]

    def _make(self, count: int) -> None:
        seen = set[tuple[Any, ...]]()
        for _ in range(count):
            fitting = self.draw.random() < self.pools.profile.fitting
            # Repeat some rows, so that two differ at most in their keys.
            before = self.fitting if fitting else self.rows
            old = self.pools.one(before) if before and self.draw.random() < 0.2 else None
            # Let some rows miss one of the conditions.
            spoilt = self.pools.one(self.asked) if self.asked and self.draw.random() < 0.3 else ""
            row = {c: self._value(c, fitting and c != spoilt, old) for c in self.table.columns}
            if any(row[c] is None for c in self.sources if c in self.table.required):
                continue  # a required parent is missing
            keys = {(u, tuple(row[c] for c in u)) for u in self.unique if all(row[c] is not None for c in u)}
            if not keys & seen:
                seen |= keys
                self.rows.append(row)
                self.fitting += [row] * fitting

    def _value(self, column: str, fitting: bool, old: Row | None) -> Value:
        draw, key = self.draw, (self.name, column)
        joined = self.partners.get(column) if fitting and draw.random() < 0.85 else None
        if column in self.fresh:
            return self._fresh_value(column, fitting, joined)
        if old is not None and draw.random() < (0.5 if column in self.sources else 0.9):
            return old[column]
        if column in self.nullable and draw.random() < self.pools.profile.nulls:
            return None
        if joined:
            return joined[int(len(joined) * draw.random() ** 2)]
        if column in self.sources:
            parent, target = self.table.foreign[column]
            choices = (parent == self.name and [r[target] for r in self.rows]) or self.sources[column]
            # Squared, so that some parents have many children.
            return choices[int(len(choices) * draw.random() ** 2)] if choices else None
        return self.pools.pick(key, fitting)

    def _fresh_value(self, column: str, fitting: bool, joined: list[Value] | None) -> Value:
        """Take an unused value of a unique column; if the row is to fit, preferably one that does."""
        fresh = self.fresh[column]
        for number, value in enumerate(fresh) if fitting else ():
            if value in joined if joined else self.pools.fits((self.name, column), value):
                return fresh.pop(number)
        return fresh.pop()

"""Small databases for a schema that tell a wrong query from a right one, for lack of the real ones.

A share of the rows satisfies what the query asks for, together with the rows they are joined to, so that its
result is seldom trivial; the rest are near misses, ties, duplicates, parents without children, groups as
large as the thresholds. Keys hold. A NULL stands only where the schema allows it and the query is meant to
see it (QueryFacts.nulls). It leaves out CHECK constraints and defaults.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from smopd.verify.sql.facts import Key, QueryFacts
from smopd.verify.sql.schema import Schema, SchemaTable
from smopd.verify.sql.synthetic_values import Pools, Profile, Value

Row = dict[str, Value]
_MOST_ROWS = 300
PROFILES = (
    Profile(14, 5, 0.5, 0.0), Profile(20, 3, 0.75, 0.0), Profile(14, 6, 0.5, 0.2), Profile(30, 25, 0.3, 0.0),
    Profile(9, 2, 0.6, 0.2), Profile(24, 4, 0.9, 0.0, fitting=0.8), Profile(4, 6, 0.6, 0.0, fitting=0.6),
    Profile(36, 9, 0.6, 0.1),
)  # fmt: skip
EMPTY, CHILDLESS = Profile(0, 1, 0.0, 0.0), Profile(9, 5, 0.6, 0.0, childless=True)
WIDE = Profile(40, 40, 0.3, 0.0, fitting=0.8, wide=True)


class _Made:
    """The rows of one table, and those among them that are to satisfy the query."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.fitting: list[Row] = []


def synthesise(
    schema: Schema, facts: QueryFacts, profile: Profile, draw: random.Random
) -> dict[str, list[tuple[Value, ...]]]:
    """Rows for every table of the schema, in the order of its columns."""
    pools = Pools(schema, facts, profile, draw)
    central = set(facts.tables)
    while more := {p for n in central for p, _ in schema[n].foreign.values()} - central:
        central |= more  # parents too: the children's keys come from them
    done: dict[str, _Made] = {}
    for name in _parents_first(schema):
        table = schema[name]
        wanted = profile.rows if name in central else min(profile.rows, 4)
        if name in central and profile.rows > 9:  # enough for the thresholds, except in the small databases
            wanted = min(_MOST_ROWS, max(wanted, 3 * facts.most, 3 * facts.limit))
        if name in central and profile.wide and table.foreign:
            wanted = min(_MOST_ROWS, 2 * wanted)
        wanted = 0 if profile.childless and table.foreign else wanted
        done[name] = _Rows(name, table, draw.randint((wanted + 1) // 2, wanted), done, pools).make()
    return {name: [tuple(row[c] for c in schema[name].columns) for row in done[name].rows] for name in done}


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


class _Rows:
    def __init__(
        self, name: str, table: SchemaTable, count: int, done: Mapping[str, _Made], pools: Pools
    ) -> None:
        self.name, self.table, self.count, self.pools, self.draw = name, table, count, pools, pools.draw
        names = [(c,) for t, c in sorted(pools.facts.names) if t == name]
        self.unique = [*table.unique, *(u for u in names if u not in table.unique)]
        self.sources: dict[str, Sequence[Value]] = {}  # a foreign key's values
        self.partners: dict[str, list[Value]] = {}  # values that join a row that fits with others that do
        for column, (parent, key) in table.foreign.items():
            if parent in done:  # else keys go round in a circle: this one comes from the pool
                self._read_parent(column, done[parent], key)
            elif parent == name:
                self.sources[column] = ()
        for column, linked in _linked(name, pools.facts):
            values = [row[c] for t, c in linked if t in done for row in done[t].fitting if row[c] is not None]
            if column not in self.partners and values:
                self.partners[column] = values
        singles = [u[0] for u in self.unique if len(u) == 1]
        self.fresh = {c: pools.distinct((name, c), count) for c in singles if c not in self.sources}
        self.asked = [c for c in table.columns if c not in self.sources and pools.asked((name, c))]
        self.nullable = {c for t, c in pools.facts.nulls if t == name} - table.required - set(singles)

    def _read_parent(self, column: str, parent: _Made, key: str) -> None:
        values = [v for row in parent.rows if (v := row[key]) is not None]
        self.draw.shuffle(values)
        # A key that the query asks for has many children; some parents have as many as a threshold asks for;
        # the last stay without.
        values.sort(key=lambda v: not self.pools.fits((self.name, column), v))
        enough = (2 if self.pools.profile.wide else 3) * self.count // (self.pools.facts.most + 1)
        self.sources[column] = values[: max(1, min(len(values) * 2 // 3, enough))]
        self.partners[column] = [v for row in parent.fitting if (v := row[key]) is not None]

    def make(self) -> _Made:
        made, seen = _Made(), set[tuple[Any, ...]]()
        for _ in range(self.count):
            fitting = self.draw.random() < self.pools.profile.fitting
            # A row to repeat, so that two differ in their keys at most.
            before = made.fitting if fitting else made.rows
            old = self.pools.one(before) if before and self.draw.random() < 0.2 else None
            # One that satisfies all conditions but one, for each of them to be missed.
            spoilt = self.pools.one(self.asked) if self.asked and self.draw.random() < 0.3 else ""
            row: Row = {}
            for column in self.table.columns:
                row[column] = self._value(column, fitting and column != spoilt, old, made.rows)
            if any(row[c] is None for c in self.sources if c in self.table.required):
                continue  # a required parent that does not exist
            keys = {(u, tuple(row[c] for c in u)) for u in self.unique if all(row[c] is not None for c in u)}
            if not keys & seen:
                seen |= keys
                made.rows.append(row)
                made.fitting += [row] * fitting
        return made

    def _value(self, column: str, fitting: bool, old: Row | None, rows: list[Row]) -> Value:
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
            choices = (parent == self.name and [r[target] for r in rows]) or self.sources[column]
            # Squared, so that some have many children.
            return choices[int(len(choices) * draw.random() ** 2)] if choices else None
        return self.pools.pick(key, fitting)

    def _fresh_value(self, column: str, fitting: bool, joined: list[Value] | None) -> Value:
        """A value of a unique column that is still free; one that is asked for where the row should fit."""
        fresh, key = self.fresh[column], (self.name, column)
        for number, value in enumerate(fresh) if fitting else ():
            if value in joined if joined else self.pools.fits(key, value):
                return fresh.pop(number)
        return fresh.pop()


def _linked(name: str, facts: QueryFacts) -> list[tuple[str, list[Key]]]:
    """The columns of a table that the query compares with columns of other tables, and those."""
    found = []
    for link in sorted(map(sorted, facts.links)):
        others = [key for key in link if key[0] != name]
        found += [(column, others) for table, column in link if table == name and others]
    return found

"""The results that a reference query allows, and the databases on which a reply has to agree with it.

Rows are a multiset, ordered where the reference orders. Rows with equal sort keys may come in any order, and
where a LIMIT cuts through such a tie, all tied rows may be given. If the result is empty or one row of NULLs,
either form or a row of zeros is right, since MAX, ORDER BY ... LIMIT 1 and COALESCE differ only there.

The databases are the user's .sqlite files, otherwise a seeded, cached set of synthetic ones. It has none on
which the reference's result depends on the order of stored rows, and few on which the result is trivial.
"""

import itertools
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from smopd.seeds import rng
from smopd.verify.sql.facts import QueryFacts, joined, reference_facts
from smopd.verify.sql.query import BAD_QUERY, Row, open_database, run_query
from smopd.verify.sql.schema import Schema, parse_schema
from smopd.verify.sql.synthetic import CHILDLESS, EMPTY, PROFILES, WIDE, synthesise

_MOST_ROWS = 100_000  # in a reference's result
_MOST_ORDERS = 5040  # column orders that are tried
_UNREADABLE = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError)
_KEPT, _TRIED = 24, 72  # databases per reference, and attempts to get them
_TRIVIAL = 4  # databases with a trivial result, at most
_CACHED = 32  # references whose databases stay in memory, about 1 MB each


class UnusableError(Exception): ...


@dataclass
class Expected:
    """A result as runs (n, rows): its next n rows come from this multiset of rows."""

    width: int
    count: int
    runs: list[tuple[int, Counter[Row]]]
    rest: int = 0  # rows of the last run that a LIMIT cut off

    @classmethod
    def without_ties(cls, width: int, rows: Sequence[Row], ordered: bool) -> "Expected":
        runs = [(1, Counter([row])) for row in rows] if ordered else [(len(rows), Counter(rows))]
        return cls(width, len(rows), runs)

    @property
    def nothing(self) -> bool:
        """Whether there is no row, or one row of NULLs."""
        return not self.count or (self.count == 1 and all(v is None for row in self.runs[0][1] for v in row))

    @property
    def trivial(self) -> bool:
        """Whether there is no row, or one row of NULLs or zeros."""
        return self.nothing or (self.count == 1 and not any(v for row in self.runs[0][1] for v in row))

    def allows(self, rows: Sequence[Row], order: Sequence[int] | None = None) -> bool:
        blank = len(rows) == 1 and not any(v not in (None, 0) for v in rows[0])
        if (self.nothing and (blank or not rows)) or (blank and self.trivial):
            return True
        return self.holds(rows, order)

    def holds(self, rows: Sequence[Row], order: Sequence[int] | None = None) -> bool:
        """Whether these are the rows, without what `allows` forgives in a trivial result."""
        if len(rows) not in (self.count, self.count + self.rest):
            return False
        at = 0
        for number, (take, run) in enumerate(self.runs, 1):
            part = rows[at : at + take] if number < len(self.runs) else rows[at:]
            at += take
            if Counter(part if order is None else (tuple(row[i] for i in order) for row in part)) - run:
                return False
        return True

    def orders(self, rows: Sequence[Row]) -> Iterator[tuple[int, ...]]:
        """Yield the column orders under which every column holds only expected values."""
        columns = range(self.width)
        wanted = [Counter(row[i] for _, run in self.runs for row in run.elements()) for i in columns]
        actual = [Counter(row[i] for row in rows) for i in columns]
        fits = [[j for j in columns if not actual[j] - wanted[i]] for i in columns]

        def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(order) == self.width:
                yield order
                return
            for j in fits[len(order)]:
                if j not in order:
                    yield from extend((*order, j))

        return itertools.islice(extend(()), _MOST_ORDERS)


class Reference:
    """A reference query; `keyed` is a variant without LIMIT and with its sort keys as columns, for ties."""

    def __init__(self, query: str) -> None:
        self.query = query.strip().rstrip(";")
        self.tree = parse_query(self.query)
        self.keyed: str | None = None
        self.keys: list[int] = []
        self.start, self.ordered = 0, bool(re.search(r"\border\s+by\b[^)]*\Z", self.query, re.IGNORECASE))
        unstable = (exp.Limit, exp.Group, exp.GroupConcat, exp.Order)
        self.shaky = self.tree is None or self.tree.find(*unstable) is not None
        if isinstance(self.tree, exp.Query):
            self._read(self.tree)

    def _read(self, tree: exp.Query) -> None:
        order, limit, offset = (tree.args.get(part) for part in ("order", "limit", "offset"))
        self.ordered = order is not None
        plain = all(isinstance(p.expression, exp.Literal) for p in (limit, offset) if p is not None)
        names = [e.alias_or_name.lower() for e in tree.selects]
        if not plain or any(e.is_star for e in tree.selects) or (order is None and limit is None):
            return
        keyed, extra = tree.copy(), list[exp.Expr]()
        for key in (o.this for o in order.expressions) if order else ():
            if isinstance(key, exp.Literal):
                self.keys.append(int(key.this) - 1)
            elif any(key == e.unalias() for e in tree.selects):
                self.keys.append(next(i for i, e in enumerate(tree.selects) if key == e.unalias()))
            elif isinstance(key, exp.Column) and not key.table and key.name.lower() in names:
                self.keys.append(names.index(key.name.lower()))
            elif isinstance(tree, exp.Select) and not tree.args.get("distinct"):
                self.keys.append(len(names) + len(extra))
                extra.append(key.copy())
            else:
                return
        if isinstance(keyed, exp.Select):
            keyed.set("expressions", [*keyed.expressions, *extra])
        keyed.set("limit", None)
        keyed.set("offset", None)
        self.start = int(offset.expression.this) if offset is not None else 0
        self.keyed = keyed.sql(dialect="sqlite")

    def expect(self, connection: sqlite3.Connection, deadline: float) -> tuple[Expected, list[Row]]:
        """Return what a right query may give on a database, and the reference's own rows."""
        width, rows = run_query(connection, self.query, deadline, _MOST_ROWS)
        if len(rows) > _MOST_ROWS:
            raise UnusableError(f"more than {_MOST_ROWS} rows")
        if self.keyed:
            with suppress(*BAD_QUERY):
                expected = self._with_ties(connection, deadline, width, len(rows))
                if expected.allows(rows):
                    return expected, rows
        return Expected.without_ties(width, rows, self.ordered), rows

    def _with_ties(self, db: sqlite3.Connection, deadline: float, width: int, count: int) -> Expected:
        """Return the result as runs of equal sort keys; OFFSET and LIMIT may cut the first and last run."""
        _, rows = run_query(db, self.keyed or "", deadline, _MOST_ROWS)
        runs, at, rest = list[tuple[int, Counter[Row]]](), 0, 0
        for _, group in itertools.groupby(rows, key=lambda row: [row[k] for k in self.keys]):
            run = [row[:width] for row in group]
            end = min(at + len(run), self.start + count)
            take, rest = end - max(at, self.start), at + len(run) - end
            at += len(run)
            if take > 0:
                runs.append((take, Counter(run)))
            if at >= self.start + count:
                break
        return Expected(width, count, runs, rest if self.ordered else 0)


def parse_query(query: str) -> exp.Query | None:
    """Parse a query with sqlglot; None if that fails, or if the query is long or deeply nested."""
    deep = max(itertools.accumulate((c == "(") - (c == ")") for c in query), default=0) > 30
    with suppress(*_UNREADABLE):
        tree = None if deep or len(query) > 5000 else sqlglot.parse_one(query, read="sqlite")
        return tree if isinstance(tree, exp.Query) else None
    return None


# --- the databases of a reference
@dataclass
class Suite:
    schema: Schema
    facts: QueryFacts
    reference: Reference
    databases: list[tuple[sqlite3.Connection, Expected]]
    synthetic: bool


_suites: dict[tuple[str, str, tuple[Path, ...]], Suite] = {}  # the last one used comes last


def suite_of(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> Suite:
    """Return a cached or new suite; a process judges one reply at a time, so nothing here takes a lock."""
    key = (ddl, query, files)
    suite = _suites.pop(key, None) or _build(ddl, query, files, deadline)
    _suites[key] = suite
    if len(_suites) > _CACHED:
        del _suites[next(iter(_suites))]
    return suite


def _build(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> Suite:
    schema, reference = parse_schema(ddl), Reference(query)
    facts = reference_facts(reference.tree, schema) if reference.tree else QueryFacts(tables=set(schema))
    suite = Suite(schema, facts, reference, [], synthetic=not files)
    for name, column in facts.repeated:  # some schemas declare one column of a two-column key as a key
        schema[name].unique = [u for u in schema[name].unique if u != (column,)]
    try:
        for path in files:
            connection = open_database(path)
            suite.databases.append((connection, reference.expect(connection, deadline)[0]))
        if files or _fill(suite, deadline):
            return suite
        halves = {(n, c) for n, t in schema.items() for c in t.columns if joined((n, c), schema, facts)}
        for name, table in schema.items():
            table.unique = [u for u in table.unique if not any((name, c) in halves for c in u)]
        facts.names.clear()
        if _fill(suite, deadline):
            return suite
        # The result always depends on the order of rows: better to judge by stored order than not at all.
        reference.shaky = False
        if _fill(suite, deadline):
            return suite
    except BAD_QUERY as error:
        raise UnusableError(str(error)) from None
    raise UnusableError("it gives the same result on every database")


def _fill(suite: Suite, deadline: float) -> bool:
    """Build the databases of a reference; return whether its results on them differ."""
    suite.databases, results, trivial = [], set[str](), 0
    for connection, expected, rows in made_databases(suite, suite.facts, "reference", _TRIED, deadline):
        if expected.trivial and (trivial := trivial + 1) > _TRIVIAL:
            connection.close()
            continue
        suite.databases.append((connection, expected))
        results.add(repr(rows))
        if len(suite.databases) >= _KEPT and len(results) > 2:
            break
    return len(results) > 1


def made_databases(
    suite: Suite, facts: QueryFacts, purpose: str, most: int, deadline: float
) -> Iterator[tuple[sqlite3.Connection, Expected, list[Row]]]:
    """Yield seeded databases on which the reference's result does not depend on the order of rows."""
    for number in range(most):
        draw = rng("database", purpose, suite.reference.query, number)
        profile = {1: EMPTY, 2: CHILDLESS, 3: WIDE}.get(number) or PROFILES[number % len(PROFILES)]
        if facts.nulls != suite.facts.nulls:  # the reply counts a column that the reference does not
            profile = replace(profile, nulls=0.4)
        tables = synthesise(suite.schema, facts, profile, draw)
        connection = open_database(tables=tables)
        expected, rows = suite.reference.expect(connection, deadline)
        if suite.reference.shaky and profile.rows:
            reverse = {name: (columns, rows[::-1]) for name, (columns, rows) in tables.items()}
            with closing(open_database(tables=reverse)) as other:
                other_rows = suite.reference.expect(other, deadline)[1]
            if not expected.allows(other_rows):
                connection.close()
                continue
        yield connection, expected, rows

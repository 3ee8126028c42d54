"""What a reference query allows as a result.

Rows are a bag, in order where the reference orders; sort keys that tie may fall either way, and where a LIMIT
cuts through a tie, all rows of the tie may be given: who asks for the largest doesn't say which of two. A
result that says nothing (no row, or one row of NULLs) may also be said the other way, or as 0: MAX, ORDER BY
... LIMIT 1 and COALESCE differ there alone.
"""

import itertools
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from smopd.verify.sql import query as sql
from smopd.verify.sql.query import Row, run_query

_MOST_ROWS = 100_000  # of a reference's result
_MOST_ORDERS = 5040  # orders of columns that are tried
_UNREADABLE = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError)


class UnusableReferenceError(Exception): ...


@dataclass
class Expected:
    """A result as runs: the next `n` rows come from the rows of a run, each as often as it is there."""

    width: int
    count: int
    runs: list[tuple[int, Counter[Row]]]
    rest: int = 0  # rows of the last run that a LIMIT cut off

    @property
    def nothing(self) -> bool:
        """Whether the result says nothing: no row, or one row of NULLs."""
        return not self.count or (self.count == 1 and all(v is None for row in self.runs[0][1] for v in row))

    @property
    def trivial(self) -> bool:
        """Whether little is learnt from the result: nothing, or one row of zeros."""
        return self.nothing or (self.count == 1 and not any(v for row in self.runs[0][1] for v in row))

    def allows(self, rows: Sequence[Row], order: Sequence[int] | None = None) -> bool:
        blank = len(rows) == 1 and not any(v not in (None, 0) for v in rows[0])
        if (self.nothing and (blank or not rows)) or (blank and self.trivial):
            return True
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
        """Orders of the columns that could make a result the expected one: each has the right values."""
        values: Counter[Row] = sum((run for _, run in self.runs), Counter())
        columns = range(self.width)
        wanted = [Counter(row[i] for row in values.elements()) for i in columns]
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
    """A reference, and for its ties a variant without LIMIT and with its sort keys as further columns."""

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
        star = any(isinstance(e, exp.Star) or e.is_star for e in tree.selects)
        if not plain or star or (order is None and limit is None):
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
        """What a right query may give on a database, and what the reference gave."""
        width, rows = run_query(connection, self.query, deadline, _MOST_ROWS)
        if len(rows) > _MOST_ROWS:
            raise UnusableReferenceError(f"more than {_MOST_ROWS} rows")
        if self.keyed:
            with suppress(*sql.BAD_QUERY):
                expected = self._with_ties(connection, deadline, width, len(rows))
                if expected.allows(rows):
                    return expected, rows
        runs = [(1, Counter([row])) for row in rows] if self.ordered else [(len(rows), Counter(rows))]
        return Expected(width, len(rows), runs), rows

    def _with_ties(self, db: sqlite3.Connection, deadline: float, width: int, count: int) -> Expected:
        """The result as runs of equal sort keys; LIMIT and OFFSET may cut the first and the last."""
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
    """The query as sqlglot reads it, or None; long and deep ones are not worth its recursion."""
    deep = max(itertools.accumulate((c == "(") - (c == ")") for c in query), default=0) > 30
    with suppress(*_UNREADABLE):
        tree = None if deep or len(query) > 5000 else sqlglot.parse_one(query, read="sqlite")
        return tree if isinstance(tree, exp.Query) else None
    return None

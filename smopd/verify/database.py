"""Is a query right? It is run beside the reference query, and must give the same result on every database.

The databases are the user's .sqlite files, otherwise small synthetic ones (synthetic_db.py): a fixed set per
reference, then, for a reply that agrees on all of them, a few made for what its own query looks at. Results
are compared as bags of rows, in order where the reference orders (ties may fall either way), under one
renaming of columns for all databases. Left out: SQL that SQLite does not know, and equivalence proofs.
"""

import itertools
import re
import sqlite3
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from smopd.errors import UserError
from smopd.seeds import rng
from smopd.verify import sql_query as sql
from smopd.verify.sql_query import TIMEOUT, Row, Tables, open_database, run_query
from smopd.verify.sql_schema import Facts, Schema, parse_schema, query_facts
from smopd.verify.synthetic_db import CHILDLESS, EMPTY, PROFILES, synthesise
from smopd.verify.task import Answer
from smopd.verify.verdict import Verdict

_KEPT, _TRIED = 24, 72  # databases per reference, and tries to get them
_OWN = 8  # further ones for a reply's own query
_CACHED = 32  # references whose databases stay in memory, about 1 MB each
_MOST_ROWS = 100_000  # of a reference's result
_MOST_ORDERS = 5040  # orders of columns that are tried
_CHECKED, _CHECK_STEPS = 10, 2_000_000  # populated databases for a cheap check, and steps of SQLite's machine
_UNREADABLE = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError)


class _ReferenceError(Exception):
    """The reference does not run, or shows nothing."""


def verify_database(
    answer: Answer, reply: str, *, timeout: float = TIMEOUT, database: str | Path | None = None
) -> Verdict:
    """Compare the query of a reply with the reference, on databases made for its schema or on real ones."""
    deadline = time.monotonic() + timeout
    reference, schema = answer.get("reference_sql"), answer.get("schema_sql")
    if not isinstance(reference, str) or not isinstance(schema, str):
        return Verdict(False, None, "error", "the answer needs the texts 'reference_sql' and 'schema_sql'")
    if (found := sql.extract_sql(reply)) is None:
        return Verdict(False, None, "no_answer", "no SQL query in the reply")
    files = _files(Path(database), str(answer.get("db_id", ""))) if database is not None else ()
    try:
        suite = _suite(schema, reference, files, deadline)
    except TimeoutError:
        return Verdict(False, found, "error", "the reference query did not end in time")
    except _ReferenceError as error:
        return Verdict(False, found, "error", f"the reference query cannot be used: {error}")
    if sql.copies(found) > sql.MOST_COPIES or len(found) > sql.MOST_CHARACTERS:
        return Verdict(False, found, "ok", "the query is too large")
    try:
        with suite.lock:
            why = _difference(suite, found, deadline)
    except TimeoutError:
        return Verdict(False, found, "timeout", f"the query did not end within {timeout:g} s")
    except sql.BAD_QUERY as error:
        return Verdict(False, found, "ok", f"the query does not run: {error}")
    return Verdict(not why, found, "ok", why)


# --- what the reference allows
@dataclass
class _Expected:
    """A result as runs: the next `n` rows come from the rows of a run, each as often as it is there."""

    width: int
    count: int
    runs: list[tuple[int, Counter[Row]]]

    def allows(self, rows: Sequence[Row], order: Sequence[int] | None = None) -> bool:
        """Does the reference allow a result of the right width, its columns taken in this order?"""
        if len(rows) != self.count:
            return False
        at = 0
        for take, run in self.runs:
            part = rows[at : at + take]
            at += take
            if Counter(part if order is None else (tuple(row[i] for i in order) for row in part)) - run:
                return False
        return True


@dataclass
class _Suite:
    """A reference, its databases and its result on each."""

    schema: Schema
    facts: Facts
    reference: "_Reference"
    databases: list[tuple[sqlite3.Connection, _Expected]]
    synthetic: bool
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Reference:
    """A reference, and for its ties a variant without LIMIT and with its sort keys as further columns."""

    def __init__(self, query: str) -> None:
        self.query = query.strip().rstrip(";")
        self.tree = _tree(self.query)
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

    def expect(self, connection: sqlite3.Connection, deadline: float) -> tuple[_Expected, list[Row]]:
        """What a right query may give on a database, and what the reference gave."""
        width, rows = run_query(connection, self.query, deadline, _MOST_ROWS)
        if len(rows) > _MOST_ROWS:
            raise _ReferenceError(f"more than {_MOST_ROWS} rows")
        if self.keyed:
            with suppress(*sql.BAD_QUERY):
                expected = self._with_ties(connection, deadline, width, len(rows))
                if expected.allows(rows):
                    return expected, rows
        runs = [(1, Counter([row])) for row in rows] if self.ordered else [(len(rows), Counter(rows))]
        return _Expected(width, len(rows), runs), rows

    def _with_ties(self, db: sqlite3.Connection, deadline: float, width: int, count: int) -> _Expected:
        """The result as runs of equal sort keys; LIMIT and OFFSET may cut the first and the last."""
        _, rows = run_query(db, self.keyed or "", deadline, _MOST_ROWS)
        runs, at = list[tuple[int, Counter[Row]]](), 0
        for _, group in itertools.groupby(rows, key=lambda row: [row[k] for k in self.keys]):
            run = [row[:width] for row in group]
            take = min(at + len(run), self.start + count) - max(at, self.start)
            at += len(run)
            if take > 0:
                runs.append((take, Counter(run)))
        return _Expected(width, count, runs)


def _tree(query: str) -> exp.Expr | None:
    """The query as sqlglot reads it, or None; long and deep ones are not worth its recursion."""
    deep = max(itertools.accumulate((c == "(") - (c == ")") for c in query), default=0) > 30
    with suppress(*_UNREADABLE):
        tree = None if deep or len(query) > 5000 else sqlglot.parse_one(query, read="sqlite")
        return tree if isinstance(tree, exp.Query) else None
    return None


# --- the databases of a reference
_suites: OrderedDict[tuple[str, str, tuple[Path, ...]], _Suite] = OrderedDict()
_suites_lock = threading.Lock()


def _suite(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> _Suite:
    key = (ddl, query, files)
    with _suites_lock:
        suite = _suites.get(key)
    suite = suite or _build(ddl, query, files, deadline)
    with _suites_lock:
        _suites[key] = suite
        _suites.move_to_end(key)
        if len(_suites) > _CACHED:
            _suites.popitem(last=False)
    return suite


def _build(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> _Suite:
    schema, reference = parse_schema(ddl), _Reference(query)
    facts = query_facts(reference.tree, schema) if reference.tree else Facts(tables=set(schema))
    suite = _Suite(schema, facts, reference, [], synthetic=not files)
    try:
        for path in files:
            connection = open_database(path)
            suite.databases.append((connection, reference.expect(connection, deadline)[0]))
        if files or _fill(suite, deadline):
            return suite
        # Some published schemas declare half of a key of two columns: no foreign key is one then.
        for table in schema.values():
            table.unique = [u for u in table.unique if not table.foreign.keys() & set(u)]
        if _fill(suite, deadline):
            return suite
        # A reference that always hangs on the order of rows: better judged on stored order than not at all.
        reference.shaky = False
        if _fill(suite, deadline):
            return suite
    except sql.BAD_QUERY as error:
        raise _ReferenceError(str(error)) from None
    raise _ReferenceError("it gives the same result on every database")


def _fill(suite: _Suite, deadline: float) -> bool:
    """Give a reference its databases; whether its results on them differ."""
    suite.databases, results, empty = [], set[str](), 0
    for connection, expected, rows in _databases(suite, suite.facts, "reference", _TRIED, deadline):
        if not expected.count and (empty := empty + 1) > _KEPT // 4:
            connection.close()  # little is learnt from one more empty result
            continue
        suite.databases.append((connection, expected))
        results.add(repr(rows))
        if len(suite.databases) >= _KEPT and len(results) > 2:
            break
    return len(results) > 1


def _databases(
    suite: _Suite, facts: Facts, purpose: str, most: int, deadline: float
) -> Iterator[tuple[sqlite3.Connection, _Expected, list[Row]]]:
    """Seeded databases on which the reference's result does not depend on the order of stored rows."""
    for number in range(most):
        draw = rng("database", purpose, suite.reference.query, number)
        profile = {1: EMPTY, 2: CHILDLESS}.get(number) or PROFILES[number % len(PROFILES)]
        made = synthesise(suite.schema, facts, profile, draw)
        tables = {name: (suite.schema[name].columns, rows) for name, rows in made.items()}
        connection = open_database(tables=tables)
        expected, rows = suite.reference.expect(connection, deadline)
        if suite.reference.shaky and profile is not EMPTY:
            reverse = {name: (columns, rows[::-1]) for name, (columns, rows) in tables.items()}
            with closing(open_database(tables=reverse)) as other:
                other_rows = suite.reference.expect(other, deadline)[1]
            if not expected.allows(other_rows):
                connection.close()
                continue
        yield connection, expected, rows


def _files(place: Path, name: str) -> tuple[Path, ...]:
    """The .sqlite files meant by a path: itself, or those of the database `name` in Spider's folders."""
    if place.is_file():
        return (place,)
    files = sorted([*(place / name).glob("*.sqlite")] or place.glob(f"{name}.sqlite")) if name else []
    if not files:
        hint = "give Spider's database folder or one .sqlite file"
        raise UserError(f"{place}: holds no {name or 'database'}/*.sqlite; {hint}")
    return tuple(files)


# --- comparing
def _difference(suite: _Suite, query: str, deadline: float) -> str:
    seen: list[tuple[_Expected, list[Row]]] = []
    orders: list[tuple[int, ...]] | None = None
    for connection, expected in _with_own(suite, query, deadline):
        width, rows = run_query(connection, query, deadline, expected.count)
        if width != expected.width:
            return f"expected {expected.width} columns, found {width}"
        if len(rows) != expected.count:
            return f"another number of rows than the expected {expected.count}"
        seen.append((expected, rows))
        if orders is None and not expected.allows(rows):
            orders = [o for o in _orders(expected, rows) if all(e.allows(r, o) for e, r in seen)]
        orders = orders and [o for o in orders if expected.allows(rows, o)]
        if orders == []:
            return "another result than the reference's"
    return ""


def _with_own(suite: _Suite, query: str, deadline: float) -> Iterator[tuple[sqlite3.Connection, _Expected]]:
    """The reference's databases; then some for what the query looks at and the reference does not."""
    yield from suite.databases
    tree = _tree(query) if suite.synthetic else None
    if tree is not None and (facts := query_facts(tree, suite.schema) | suite.facts) != suite.facts:
        for connection, expected, _ in _databases(suite, facts, "candidate", _OWN, deadline):
            try:
                yield connection, expected
            finally:
                connection.close()


def _orders(expected: _Expected, rows: Sequence[Row]) -> Iterator[tuple[int, ...]]:
    """Orders of the columns that could make a result the expected one: each must hold the right values."""
    values: Counter[Row] = sum((run for _, run in expected.runs), Counter())
    columns = range(expected.width)
    wanted = [Counter(row[i] for row in values.elements()) for i in columns]
    found = [Counter(row[i] for row in rows) for i in columns]
    fits = [[j for j in columns if not found[j] - wanted[i]] for i in columns]

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == expected.width:
            yield order
            return
        for j in fits[len(order)]:
            if j not in order:
                yield from extend((*order, j))

    return itertools.islice(extend(()), _MOST_ORDERS)


# --- a cheap check of a reference
def shows_something(answer: Answer) -> str | None:
    """Why a reference cannot serve, None if it runs and its result differs from database to database."""
    query, schema = answer["reference_sql"], parse_schema(answer["schema_sql"])
    try:
        facts = query_facts(sqlglot.parse_one(query, read="sqlite"), schema)
    except _UNREADABLE:
        facts = Facts(tables=set(schema))
    empty = ""  # the full verifier, asked in case of doubt, takes ten times as long
    for number in range(_CHECKED + 1):
        profile = PROFILES[number % len(PROFILES)] if number else EMPTY
        rows = synthesise(schema, facts, profile, rng("reference", query, number))
        try:
            result = _untyped_result(query, {name: (schema[name].columns, rows[name]) for name in rows})
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            return f"the reference {'runs too long' if 'interrupt' in str(error) else 'does not run'}"
        if number == 0:
            empty = result
        elif result != empty:
            return None
    right = verify_database(answer, query, timeout=60.0).correct
    return None if right else "the reference gives the same result on every database"


def _untyped_result(query: str, tables: Tables) -> str:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        sql.create_tables(connection, tables, typed=False)
        # Steps of SQLite's machine are a limit that is the same on every computer.
        connection.set_progress_handler(lambda: True, _CHECK_STEPS)
        return repr(connection.execute(query).fetchmany(100_000))

"""Is the SQL of a reply right? It is run beside the reference query, and must give the same result on every
database.

The databases are the user's .sqlite files where there are some, otherwise small synthetic ones
(synthetic_db.py): a fixed set per reference, then, for a reply that agrees on all of them, a few more made
for what its own query looks at. Results are compared as bags of rows, in order where the reference orders
(ties may fall either way), under one renaming of columns for all databases. A query can only read; it is
stopped at its time limit and refused where it would grow without bound. Left out: SQL that SQLite does not
know, and equivalence proofs: agreement on all databases is the rule.
"""

import itertools
import re
import sqlite3
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from smopd.errors import UserError
from smopd.seeds import rng
from smopd.verify.synthetic_db import (
    CHILDLESS,
    EMPTY,
    PROFILES,
    Facts,
    Schema,
    parse_schema,
    query_facts,
    synthesise,
)
from smopd.verify.verdict import Verdict

Row = tuple[Any, ...]
TIMEOUT = 5.0  # seconds for a reply, the making of its databases included
_KEPT, _TRIED, _OWN = (
    24,
    72,
    8,
)  # databases per reference, tries to get them, further ones for a reply's own query
_CACHED = 32  # references whose databases stay in memory, about 1 MB each
_MOST_ROWS = 100_000  # of a reference's result
_MOST_CHARACTERS = 20_000  # of a query
_MOST_COPIES = 1000  # of common table expressions, each use being one
_MOST_ORDERS = 5040  # orders of columns that are tried
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000,  # also of what one step of a function can take, as nothing stops it within a step
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 2 * _MOST_CHARACTERS,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 30,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {
    "load_extension",
    "randomblob",
    "zeroblob",
    "fts3_tokenizer",
    "printf",
    "format",
}  # the last pad unstoppably
_BAD_QUERY = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)


def verify_database(
    answer: Mapping[str, Any], reply: str, *, timeout: float = TIMEOUT, database: Path | None = None
) -> Verdict:
    """Compare the reply's query with `answer["reference_sql"]` on databases of `answer["schema_sql"]`, or on
    real ones.
    """
    deadline = time.monotonic() + timeout
    reference, schema = answer.get("reference_sql"), answer.get("schema_sql")
    if not isinstance(reference, str) or not isinstance(schema, str):
        return Verdict(False, None, "error", "the answer needs the texts 'reference_sql' and 'schema_sql'")
    if (found := extract_sql(reply)) is None:
        return Verdict(False, None, "no_answer", "no SQL query in the reply")
    files = _files(Path(database), str(answer.get("db_id", ""))) if database is not None else ()
    try:
        suite = _suite(schema, reference, files, deadline)
    except TimeoutError:
        return Verdict(False, found, "error", "the reference query did not end in time")
    except _ReferenceError as error:
        return Verdict(False, found, "error", f"the reference query cannot be used: {error}")
    if _copies(found) > _MOST_COPIES or len(found) > _MOST_CHARACTERS:
        return Verdict(False, found, "ok", "the query is too large")
    try:
        with suite.lock:
            why = _difference(suite, found, deadline)
    except TimeoutError:
        return Verdict(False, found, "timeout", f"the query did not end within {timeout:g} s")
    except _BAD_QUERY as error:
        return Verdict(False, found, "ok", f"the query does not run: {error}")
    return Verdict(not why, found, "ok", why)


# --- finding the query
# ------------------------------------------------------------------------------------------------
_FENCE = re.compile(r"```[ \t]*+(?:sqlite3?\b|sql\b)?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_START = re.compile(
    r"(?<![\w.])(?:SELECT\b|WITH\s++(?:RECURSIVE\s++)?[\w\"`\[]++[^\n]{0,200}?\bAS\b)", re.IGNORECASE
)
_TOKEN = re.compile(  # what does not close goes on to the end: that keeps the search linear
    r"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|'(?:[^']|'')*+(?:'|\Z)|\"[^\"]*+(?:\"|\Z)|`[^`\n]*+`|(?P<blank>\n[ \t]*+\n)"
    r"|[();]|\w+|[^\w();]", re.DOTALL
)  # fmt: skip
_COMMON = re.compile(
    r"(?<!\w)(\w++|\"[^\"]++\"|`[^`]++`|\[[^\]]++\])\s*+(?:\([^()]*+\))?\s*+\bAS\b\s*+(?:NOT\s++)?(?:MATERIALIZED\s*+)?\(",
    re.IGNORECASE,
)
_CUT = re.compile(r"\n|[.:!]\s|[.*`]+\s*\Z|`")
_INNER = ("(", "union", "all", "intersect", "except", "exists")  # before a query that is part of another
_NO_SYNTAX = (
    "syntax error",
    "incomplete input",
    "unrecognized token",
    "too big",
    "too deep",
    "stack overflow",
)


def extract_sql(text: str) -> str | None:
    """The last query of the last fenced block that has one, otherwise of the whole text; None where nothing
    looks like SQL.
    """
    broken = None
    blocks = [match[1] for match in _FENCE.finditer(text)][-8:]
    for block in reversed(blocks):
        if query := _last_query(block, fenced=True):
            return query
        if broken is None and re.search(r"\b(?:SELECT|WITH)\b", block, re.IGNORECASE):
            broken = block.strip()[:_MOST_CHARACTERS]
    prose = _FENCE.sub("\n\n", text) if blocks else text
    if broken is None and (query := _last_query(prose, fenced=False)):
        return query
    if broken is None and (
        starts := list(re.finditer(r"\bSELECT\b(?=[^;]{0,2000}?\bFROM\b)", prose[-_MOST_CHARACTERS:]))
    ):
        broken = prose[-_MOST_CHARACTERS:][starts[0].start() :].split(";")[0].strip()
    return broken


def _last_query(text: str, fenced: bool) -> str | None:
    """The last stretch of the text that SQLite's grammar takes for a query."""
    text = text[-_MOST_CHARACTERS:]
    every = [match.start() for match in _START.finditer(text)]
    outer = [
        start for start in every if not text[max(0, start - 30) : start].rstrip().lower().endswith(_INNER)
    ]
    starts = (outer or every)[-20:]
    found, at = None, 0
    for start in starts:
        if start < at:
            continue
        end = _statement_end(text, start, fenced)
        ends = (
            [end] if fenced else [end, *(m.start() for m in list(_CUT.finditer(text, start, end))[-6:][::-1])]
        )
        for stop in ends:
            if _is_query(query := text[start:stop].strip()):
                found, at = query, stop
                break
    return found


def _statement_end(text: str, start: int, fenced: bool) -> int:
    depth = 0
    if not fenced and text[start - 1 : start] == "`" and (tick := text.find("`", start)) > 0:
        return tick
    for token in _TOKEN.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if token[0] == ";" or depth < 0 or (token["blank"] and not fenced):
            return token.start()
    return len(text)


def _is_query(text: str) -> bool:
    """Whether SQLite's grammar takes the text; whatever its names mean."""
    if not text or _copies(text) > _MOST_COPIES:
        return bool(text)
    try:
        with closing(_open()) as connection:
            connection.execute(f"EXPLAIN {text}")
    except _BAD_QUERY as error:
        return isinstance(error, sqlite3.Error) and not any(words in str(error) for words in _NO_SYNTAX)
    return True


def _copies(query: str) -> int:
    """How often common table expressions would be copied in: nested ones can double at each step, before a
    query even starts.
    """
    query = "".join(" " if token["comment"] else token[0] for token in _TOKEN.finditer(query))
    opened = {match.end() - 1: match[1].strip('"`[]').lower() for match in _COMMON.finditer(query)}
    if not opened:
        return 0
    costs: dict[str, int] = dict.fromkeys(opened.values(), 1)
    counts, names = [0], [""]
    for token in _TOKEN.finditer(query):
        word = token[0].strip('"`').lower()
        if token[0] == "(":
            counts.append(0)
            names.append(opened.get(token.start(), ""))
        elif token[0] == ")" and len(counts) > 1:
            inner, name = counts.pop(), names.pop()
            counts[-1] += inner
            costs[name] = 1 + inner
        elif word in costs and word not in names:
            counts[-1] += costs[word]
    return sum(counts)


# --- running queries
# --------------------------------------------------------------------------------------------------
class _ReferenceError(Exception):
    """The reference does not run, or shows nothing."""


def _guard(action: int, name: str | None, detail: str | None, *_: str | None) -> int:
    refused = action not in _ALLOWED or (detail or "").lower() in _REFUSED_FUNCTIONS
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def _open(
    path: Path | None = None, tables: Mapping[str, Sequence[Row]] | None = None, schema: Schema | None = None
) -> sqlite3.Connection:
    """A database that can only be read: a file, or tables in memory."""
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1" if path else ":memory:"
    connection = sqlite3.connect(
        uri, uri=path is not None, check_same_thread=False, isolation_level=None, cached_statements=8
    )
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    if tables and schema:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("BEGIN")
        for name, rows in tables.items():
            columns = [f'"{column}" {_AFFINITY[kind]}' for column, kind in schema[name].columns.items()]
            connection.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
            connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)
        connection.execute("COMMIT")
    connection.execute("PRAGMA temp_store = MEMORY")
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(_guard)
    return connection


_AFFINITY = {"int": "INTEGER", "real": "REAL", "text": "TEXT", "date": "TEXT"}


def _run(connection: sqlite3.Connection, query: str, deadline: float, most: int) -> tuple[int, list[Row]]:
    """The width and at most `most` + 1 rows of a query's result, numbers rounded to what two orders of adding
    agree on.
    """
    if time.monotonic() > deadline:
        raise TimeoutError
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 200)
    try:
        cursor = connection.execute(query)
        rows = cursor.fetchmany(most + 1)
        width = len(cursor.description or ())
        cursor.close()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise TimeoutError from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
    if any(isinstance(v, float) for row in rows for v in row):
        rows = [tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row) for row in rows]
    return width, rows


# --- what the reference allows
# ----------------------------------------------------------------------------------------
@dataclass
class _Expected:
    """A result as runs of rows in order: the next `n` rows must come from the rows of the run, each as often
    as it is there.
    """

    width: int
    count: int
    runs: list[tuple[int, Counter[Row]]]

    def allows(self, rows: Sequence[Row], order: Sequence[int] | None = None) -> bool:
        """Whether a result of the right width is one the reference allows, its columns taken in this order."""
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
    """A reference query, and a variant of it without LIMIT and with its sort keys as further columns, to know
    the ties.
    """

    def __init__(self, query: str) -> None:
        self.query = query.strip().rstrip(";")
        self.tree = _tree(self.query)
        self.keyed: str | None = None
        self.keys: list[int] = []
        self.start, self.ordered = 0, bool(re.search(r"\border\s+by\b[^)]*\Z", self.query, re.IGNORECASE))
        self.shaky = self.tree is None or bool(
            self.tree.find(exp.Limit, exp.Group, exp.GroupConcat, exp.Order)
        )
        if isinstance(self.tree, exp.Query):
            self._read(self.tree)

    def _read(self, tree: exp.Query) -> None:
        order, limit, offset = (tree.args.get(part) for part in ("order", "limit", "offset"))
        self.ordered = order is not None
        plain = all(isinstance(p.expression, exp.Literal) for p in (limit, offset) if p is not None)
        names = [e.alias_or_name.lower() for e in tree.selects]
        if (
            not plain
            or (order is None and limit is None)
            or any(isinstance(e, exp.Star) or e.is_star for e in tree.selects)
        ):
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
        width, rows = _run(connection, self.query, deadline, _MOST_ROWS)
        if len(rows) > _MOST_ROWS:
            raise _ReferenceError(f"more than {_MOST_ROWS} rows")
        if self.keyed:
            with suppress(*_BAD_QUERY):
                expected = self._with_ties(connection, deadline, width, len(rows))
                if expected.allows(rows):
                    return expected, rows
        runs = [(1, Counter([row])) for row in rows] if self.ordered else [(len(rows), Counter(rows))]
        return _Expected(width, len(rows), runs), rows

    def _with_ties(
        self, connection: sqlite3.Connection, deadline: float, width: int, count: int
    ) -> _Expected:
        """The result as runs of rows with equal sort keys, the first and last of which LIMIT and OFFSET may
        cut.
        """
        _, rows = _run(connection, self.keyed or "", deadline, _MOST_ROWS)
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
    if len(query) > 5000 or max(itertools.accumulate((c == "(") - (c == ")") for c in query), default=0) > 30:
        return None
    try:
        tree = sqlglot.parse_one(query, read="sqlite")
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        return None
    return tree if isinstance(tree, exp.Query) else None


# --- the databases of a reference
# -------------------------------------------------------------------------------------
_suites: OrderedDict[tuple[str, str, tuple[Path, ...]], _Suite] = OrderedDict()
_suites_lock = threading.Lock()


def _suite(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> _Suite:
    """The databases of a reference, from the cache or new."""
    key = (ddl, query, files)
    with _suites_lock:
        if key in _suites:
            _suites.move_to_end(key)
            return _suites[key]
    suite = _build(ddl, query, files, deadline)
    with _suites_lock:
        _suites[key] = suite
        while len(_suites) > _CACHED:
            _suites.popitem(last=False)
    return suite


def _build(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> _Suite:
    schema, reference = parse_schema(ddl), _Reference(query)
    facts = query_facts(reference.tree, schema) if reference.tree else Facts(tables=set(schema))
    suite = _Suite(schema, facts, reference, [], synthetic=not files)
    try:
        for path in files:
            connection = _open(path)
            suite.databases.append((connection, reference.expect(connection, deadline)[0]))
        if files or _fill(suite, deadline):
            return suite
        for table in (
            schema.values()
        ):  # some published schemas declare half of a key of two columns: no foreign key is one then
            table.unique = [u for u in table.unique if not table.foreign.keys() & set(u)]
        if _fill(suite, deadline):
            return suite
        reference.shaky = False  # a reference that always hangs on the order of rows: better on stored order than not at all
        if _fill(suite, deadline):
            return suite
    except _BAD_QUERY as error:
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
    """Seeded databases on which the reference's result does not hang on the order in which rows happen to be
    stored.
    """
    for number in range(most):
        draw = rng("database", purpose, suite.reference.query, number)
        profile = {1: EMPTY, 2: CHILDLESS}.get(number) or PROFILES[number % len(PROFILES)]
        tables = synthesise(suite.schema, facts, profile, draw)
        connection = _open(None, tables, suite.schema)
        expected, rows = suite.reference.expect(connection, deadline)
        if suite.reference.shaky and profile is not EMPTY:
            other = _open(None, {name: rows[::-1] for name, rows in tables.items()}, suite.schema)
            stable = expected.allows(suite.reference.expect(other, deadline)[1])
            other.close()
            if not stable:
                connection.close()
                continue
        yield connection, expected, rows


def _files(place: Path, name: str) -> tuple[Path, ...]:
    """The .sqlite files meant by a path: itself, or those of the database `name` in Spider's folders."""
    if place.is_file():
        return (place,)
    files = sorted([*(place / name).glob("*.sqlite")] or place.glob(f"{name}.sqlite")) if name else []
    if not files:
        raise UserError(
            f"{place}: holds no {name or 'database'}/*.sqlite; give Spider's database folder or one .sqlite file"
        )
    return tuple(files)


# --- comparing
# --------------------------------------------------------------------------------------------------------
def _difference(suite: _Suite, query: str, deadline: float) -> str:
    """Where a query departs from the reference; an empty text where it nowhere does."""
    seen: list[tuple[_Expected, list[Row]]] = []
    orders: list[tuple[int, ...]] | None = None
    for connection, expected in _with_own(suite, query, deadline):
        width, rows = _run(connection, query, deadline, expected.count)
        if width != expected.width:
            return f"expected {expected.width} columns, found {width}"
        if len(rows) != expected.count:
            return f"another number of rows than the expected {expected.count}"
        seen.append((expected, rows))
        if orders is None and not expected.allows(rows):
            orders = [o for o in _orders(expected, rows) if all(e.allows(r, o) for e, r in seen)]
        elif orders is not None:
            orders = [o for o in orders if expected.allows(rows, o)]
        if orders == []:
            return "another result than the reference's"
    return ""


def _with_own(suite: _Suite, query: str, deadline: float) -> Iterator[tuple[sqlite3.Connection, _Expected]]:
    """The reference's databases; then, where the query looks at something the reference does not, some that
    show it.
    """
    yield from suite.databases
    tree = _tree(query) if suite.synthetic else None
    if tree is not None and (facts := query_facts(tree, suite.schema) | suite.facts) != suite.facts:
        for connection, expected, _ in _databases(suite, facts, "candidate", _OWN, deadline):
            try:
                yield connection, expected
            finally:
                connection.close()


def _orders(expected: _Expected, rows: Sequence[Row]) -> Iterator[tuple[int, ...]]:
    """Orders of the columns that could make a result the expected one: each column must hold the values it
    should.
    """
    values: Counter[Row] = sum((run for _, run in expected.runs), Counter())
    wanted = [Counter(v for row, n in values.items() for v in [row[i]] * n) for i in range(expected.width)]
    found = [Counter(row[i] for row in rows) for i in range(expected.width)]
    fits = [[j for j in range(expected.width) if not found[j] - wanted[i]] for i in range(expected.width)]

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == expected.width:
            yield order
            return
        for j in fits[len(order)]:
            if j not in order:
                yield from extend((*order, j))

    return itertools.islice(extend(()), _MOST_ORDERS)

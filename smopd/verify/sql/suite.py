"""The databases of a reference: the user's .sqlite files, otherwise synthetic ones (synthetic.py).

These are a fixed, seeded set per reference, kept in memory. A database on which the reference's result hangs
on the order of stored rows is left out, and few are kept on which the result is trivial.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from smopd.errors import UserError
from smopd.seeds import rng
from smopd.verify.sql import query as sql
from smopd.verify.sql.facts import QueryFacts, joined, reference_facts
from smopd.verify.sql.query import Row, Tables, open_database
from smopd.verify.sql.reference import Expected, Reference, UnusableReferenceError
from smopd.verify.sql.schema import Schema, parse_schema
from smopd.verify.sql.synthetic import CHILDLESS, EMPTY, PROFILES, WIDE, synthesise

_KEPT, _TRIED = 24, 72  # databases per reference, and tries to get them
_TRIVIAL = 4  # of them at most
_CACHED = 32  # references whose databases stay in memory, about 1 MB each


@dataclass
class Suite:
    schema: Schema
    facts: QueryFacts
    reference: Reference
    databases: list[tuple[sqlite3.Connection, Expected]]
    synthetic: bool
    lock: threading.Lock = field(default_factory=threading.Lock)


_suites: OrderedDict[tuple[str, str, tuple[Path, ...]], Suite] = OrderedDict()
_suites_lock = threading.Lock()


def suite_of(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> Suite:
    key = (ddl, query, files)
    suite = _suites.get(key) or _build(ddl, query, files, deadline)
    with _suites_lock:
        _suites[key] = suite
        _suites.move_to_end(key)
        if len(_suites) > _CACHED:
            _suites.popitem(last=False)
    return suite


def _build(ddl: str, query: str, files: tuple[Path, ...], deadline: float) -> Suite:
    schema, reference = parse_schema(ddl), Reference(query)
    facts = reference_facts(reference.tree, schema) if reference.tree else QueryFacts(tables=set(schema))
    suite = Suite(schema, facts, reference, [], synthetic=not files)
    # Some published schemas declare half of a key of two columns; the reference knows better.
    for name, column in facts.repeated:
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
        # A reference that always hangs on the order of rows: better judged on stored order than not at all.
        reference.shaky = False
        if _fill(suite, deadline):
            return suite
    except sql.BAD_QUERY as error:
        raise UnusableReferenceError(str(error)) from None
    raise UnusableReferenceError("it gives the same result on every database")


def _fill(suite: Suite, deadline: float) -> bool:
    """Give a reference its databases; whether its results on them differ."""
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
    """Seeded databases on which the reference's result does not depend on the order of stored rows."""
    for number in range(most):
        draw = rng("database", purpose, suite.reference.query, number)
        profile = {1: EMPTY, 2: CHILDLESS, 3: WIDE}.get(number) or PROFILES[number % len(PROFILES)]
        if facts.nulls != suite.facts.nulls:  # a column whose values the reference does not count
            profile = replace(profile, nulls=0.4)
        rows_by_table = synthesise(suite.schema, facts, profile, draw)
        tables: Tables = {name: (suite.schema[name].columns, rows) for name, rows in rows_by_table.items()}
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


def database_files(place: Path, name: str) -> tuple[Path, ...]:
    """The .sqlite files meant by a path: itself, or those of the database `name` in Spider's folders."""
    if place.is_file():
        return (place,)
    files = sorted([*(place / name).glob("*.sqlite")] or place.glob(f"{name}.sqlite")) if name else []
    if not files:
        hint = "give Spider's database folder or one .sqlite file"
        raise UserError(f"{place}: holds no {name or 'database'}/*.sqlite; {hint}")
    return tuple(files)

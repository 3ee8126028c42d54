"""Decide whether a query is right: it must give the reference query's result on every database.

The databases are those of the reference (reference.py). If they are synthetic, a reply that agrees on all of
them also runs on a few built for what its own query looks at. Columns may come in another order, if it is the
same on all databases. SQL that SQLite does not know is wrong, and equivalence is not proved.
"""

import itertools
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from smopd.errors import UserError
from smopd.seeds import rng
from smopd.verify.sql import query as sql
from smopd.verify.sql.facts import QueryFacts, query_facts
from smopd.verify.sql.literals import respelled
from smopd.verify.sql.query import TIMEOUT, Row, run_query
from smopd.verify.sql.reference import Expected, Suite, UnusableError, made_databases, parse_query, suite_of
from smopd.verify.sql.reply import extract_sql
from smopd.verify.sql.schema import parse_schema
from smopd.verify.sql.synthetic import EMPTY, PROFILES, synthesise
from smopd.verify.task import Answer
from smopd.verify.verdict import Verdict

_OWN = 8  # further databases, built for the reply's query
_LOW = 2  # a LIMIT that has an effect on small databases
_LIMIT = re.compile(
    r"(?i)(\bLIMIT\s++(?:[0-9]++\s*+,\s*+)?)([0-9]{1,6})((?:\s++OFFSET\s++[0-9]++)?[\s;]*+)\Z"
)
_CHECKED, _CHECK_STEPS = 10, 2_000_000  # populated databases, and steps of SQLite's VM, in a cheap check


def verify_database(
    answer: Answer,
    reply: str,
    *,
    timeout: float = TIMEOUT,
    database: str | Path | None = None,
    texts: Sequence[str] = (),
    rule: str = "suite",
) -> Verdict:
    """Judge a reply's query by the reference; literals may be spelled as in `texts`, the user's messages."""
    deadline = time.monotonic() + timeout
    reference, schema = answer.get("reference_sql"), answer.get("schema_sql")
    if not isinstance(reference, str) or not isinstance(schema, str):
        return Verdict(False, None, "error", "the answer needs the texts 'reference_sql' and 'schema_sql'")
    if (query := extract_sql(reply)) is None:
        return Verdict(False, None, "no_answer", "no SQL query in the reply")
    files = _database_files(Path(database), str(answer.get("db_id", ""))) if database is not None else ()
    try:
        suite = suite_of(schema, reference, files, deadline)
    except TimeoutError:
        return Verdict(False, query, "error", "the reference query did not end in time")
    except UnusableError as error:
        return Verdict(False, query, "error", f"the reference query cannot be used: {error}")
    if sql.copies(query) > sql.MOST_COPIES or len(query) > sql.MOST_CHARACTERS:
        return Verdict(False, query, "ok", "the query is too large")
    try:
        why = (lic_difference if rule == "lic" else difference)(suite, query, deadline)
        other = respelled(suite, query, texts) if why and texts and rule != "lic" else None
        if other and not difference(suite, other, deadline):
            return Verdict(True, query, "ok", "with literals in the user's spelling")
    except TimeoutError:
        return Verdict(False, query, "timeout", f"the query did not end within {timeout:g} s")
    except sql.BAD_QUERY as error:
        return Verdict(False, query, "ok", f"the query does not run: {error or type(error).__name__}")
    return Verdict(not why, query, "ok", why)


def _database_files(place: Path, name: str) -> tuple[Path, ...]:
    """Return `place` if it is a file, else the .sqlite files of database `name` in Spider's layout."""
    if place.is_file():
        return (place,)
    files = sorted([*(place / name).glob("*.sqlite")] or place.glob(f"{name}.sqlite")) if name else []
    if not files:
        hint = "give Spider's database folder or one .sqlite file"
        raise UserError(f"{place}: holds no {name or 'database'}/*.sqlite; {hint}")
    return tuple(files)


def difference(suite: Suite, query: str, deadline: float) -> str:
    reference = suite.reference.tree
    if suite.synthetic and reference is not None and not reference.args.get("limit"):
        # Lower a LIMIT that the reference does not have, so that it cuts rows on small databases.
        query = _LIMIT.sub(lambda match: f"{match[1]}{min(int(match[2]), _LOW)}{match[3]}", query)
    seen: list[tuple[Expected, list[Row]]] = []
    orders: list[tuple[int, ...]] | None = None
    for connection, expected in _iterate_databases(suite, query, deadline):
        most = expected.count + expected.rest
        width, rows = run_query(connection, query, deadline, most)
        if width != expected.width:
            return f"expected {expected.width} columns, found {width}"
        seen.append((expected, rows))
        if orders is None and not expected.allows(rows):
            if len(rows) not in (expected.count, most):
                return f"another number of rows than the expected {expected.count}"
            orders = [o for o in expected.orders(rows) if all(e.allows(r, o) for e, r in seen)]
        orders = orders and [o for o in orders if expected.allows(rows, o)]
        if orders == []:
            return "another result than the reference's"
    return ""


def _iterate_databases(
    suite: Suite, query: str, deadline: float
) -> Iterator[tuple[sqlite3.Connection, Expected]]:
    """Yield the reference's databases, then some for what only the reply's query looks at."""
    yield from suite.databases
    tree = parse_query(query) if suite.synthetic else None
    if tree is None:
        return
    facts = query_facts(tree, suite.schema)
    # A constant that differs from the reference's in case alone needs no database.
    known = {(key, text.lower()) for key, _, text in suite.facts.constants}
    facts.constants = {c for c in facts.constants if (c[0], c[2].lower()) not in known}
    if (facts := facts | suite.facts) != suite.facts:
        left = _OWN
        for connection, expected, _ in made_databases(suite, facts, "candidate", 3 * _OWN, deadline):
            with closing(connection):
                if not expected.trivial:
                    left -= 1
                    yield connection, expected
            if not left:
                return


# --- LiC's rule, for comparison with published figures
_MOST_QUERIES = 100
_MOST_ROWS = 100_000
_TOKEN = re.compile(
    r"(?s)(?P<value>'(?:[^']|'')*+'|\"[^\"]*+\"|(?<![\w.])(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?![\w.]))"
    r"|--[^\n]*+|/\*.*?\*/|`[^`]*+`|\[[^\]]*+\]|\w++|\s++|."
)
_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)", re.IGNORECASE)
_SPLIT = re.compile(r"([<>!]) =")  # some models write >= like this


def lic_difference(suite: Suite, query: str, deadline: float) -> str:
    """Return how a query differs by LiC's rule, which forgives literals and DISTINCT; empty if it does not.

    Any literal of the reply, the LIMIT included, may be replaced by any of the reference's; the first hundred
    combinations are tried, the unchanged query first. DISTINCT is dropped from both queries. Rows are a
    multiset, ordered if the reference contains an ORDER BY anywhere; the column order may differ between
    databases; two empty results are equal. LiC uses Spider's databases; without them synthetic ones serve,
    except those on which the reference's sort keys tie.
    """
    reference = _without_distinct(suite.reference.query)
    ordered = "order by" in reference.lower()
    results: dict[int, Expected] = {}
    steady = [number for number, (_, e) in enumerate(suite.databases) if all(n == 1 for n, _ in e.runs)]
    numbers = steady if ordered and suite.synthetic and steady else range(len(suite.databases))
    for candidate in itertools.islice(_candidates(query, reference), _MOST_QUERIES):
        with suppress(*sql.BAD_QUERY):
            for number in numbers:
                connection = suite.databases[number][0]
                if number not in results:
                    result = run_query(connection, reference, deadline, _MOST_ROWS)
                    results[number] = Expected.without_ties(*result, ordered)
                expected = results[number]
                width, rows = run_query(connection, candidate, deadline, expected.count)
                if not expected.count and not rows:
                    continue
                orders = expected.orders(rows) if width == expected.width else ()
                if not any(expected.holds(rows, order) for order in orders):
                    break
            else:
                return ""
    return "another result than the reference's by LiC's rule"


def _candidates(query: str, reference: str) -> Iterator[str]:
    """Yield the query, then every variant with literals of the reference in place of its own."""
    tokens = list(_TOKEN.finditer(_without_distinct(query)))
    slots = [number for number, token in enumerate(tokens) if token["value"]]
    pieces = [token[0] for token in tokens]
    yield "".join(pieces)
    values = dict.fromkeys(token[0] for token in _TOKEN.finditer(reference) if token["value"])
    for chosen in itertools.product(values, repeat=len(slots)):
        for number, value in zip(slots, chosen, strict=True):
            pieces[number] = value
        yield "".join(pieces)


def _without_distinct(query: str) -> str:
    query = _SPLIT.sub(r"\1=", _YEAR.sub("2020", query))
    return "".join(token[0] for token in _TOKEN.finditer(query) if token[0].lower() != "distinct")


# --- a cheap check of a reference
def shows_something(answer: Answer) -> str | None:
    """Return why a reference is unusable; None if it runs and its results differ between databases."""
    query, schema = answer["reference_sql"], parse_schema(answer["schema_sql"])
    tree = parse_query(query.strip().rstrip(";"))
    facts = query_facts(tree, schema) if tree else QueryFacts(tables=set(schema))
    empty = ""  # the result on empty tables
    for number in range(_CHECKED + 1):
        profile = PROFILES[number % len(PROFILES)] if number else EMPTY
        tables = synthesise(schema, facts, profile, rng("reference", query, number))
        try:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                sql.create_tables(connection, tables, typed=False)
                # Counted in steps, so that the limit is the same on every computer.
                connection.set_progress_handler(lambda: True, _CHECK_STEPS)
                result = repr(connection.execute(query).fetchmany(_MOST_ROWS))
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            return f"the reference {'runs too long' if 'interrupt' in str(error) else 'does not run'}"
        if number == 0:
            empty = result
        elif result != empty:
            return None
    right = verify_database(answer, query, timeout=60.0).correct  # ten times as slow
    return None if right else "the reference gives the same result on every database"

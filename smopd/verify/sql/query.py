"""Run a query on a read-only database with a time limit."""

import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]
Tables = Mapping[str, tuple[Mapping[str, str], Sequence[Row]]]  # name -> (column kinds, rows)
TIMEOUT = 5.0  # seconds per reply, including the making of its databases
MOST_CHARACTERS = 20_000  # of a query
MOST_COPIES = 1000  # uses of common table expressions, once expanded
# LENGTH also bounds the work of one function call, which the time limit cannot interrupt.
_LIMITS = {"LENGTH": 10_000, "SQL_LENGTH": 2 * MOST_CHARACTERS, "EXPR_DEPTH": 200, "COMPOUND_SELECT": 30}
_LIMITS |= {"LIKE_PATTERN_LENGTH": 500, "ATTACHED": 0, "WORKER_THREADS": 0}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
# The time limit cannot interrupt the padding of printf and format.
_REFUSED = {"load_extension", "randomblob", "zeroblob", "fts3_tokenizer", "printf", "format"}
_AFFINITY = {"int": "INTEGER", "real": "REAL", "text": "TEXT", "date": "TEXT"}
BAD_QUERY = (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError)

TOKEN = re.compile(  # an unclosed token runs to the end, which keeps the search linear
    r"(?s)(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|'(?:[^']|'')*+(?:'|\Z)|\"[^\"]*+(?:\"|\Z)|`[^`\n]*+`"
    r"|(?P<blank>\n[ \t]*+\n)|[();]|\w+|[^\w();]"
)
_COMMON = re.compile(
    r"(?i)(?<!\w)(\w++|\"[^\"]++\"|`[^`]++`|\[[^\]]++\])\s*+(?:\([^()]*+\))?\s*+"
    r"\bAS\b\s*+(?:NOT\s++)?(?:MATERIALIZED\s*+)?\("
)


def copies(query: str) -> int:
    """Count the uses of common table expressions once expanded; nested ones can double at each step."""
    query = "".join(" " if token["comment"] else token[0] for token in TOKEN.finditer(query))
    opened = {match.end() - 1: match[1].strip('"`[]').lower() for match in _COMMON.finditer(query)}
    if not opened:
        return 0
    costs: dict[str, int] = dict.fromkeys(opened.values(), 1)
    counts, names = [0], [""]
    for token in TOKEN.finditer(query):
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
def _guard(action: int, name: str | None, detail: str | None, *_: str | None) -> int:
    refused = action not in _ALLOWED or (detail or "").lower() in _REFUSED
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def create_tables(connection: sqlite3.Connection, tables: Tables, typed: bool = True) -> None:
    for name, (kinds, rows) in tables.items():
        columns = [f'"{c}" {_AFFINITY[kind]}' if typed else f'"{c}"' for c, kind in kinds.items()]
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)


def open_database(path: Path | None = None, tables: Tables | None = None) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1" if path else ":memory:"
    options: dict[str, Any] = {"check_same_thread": False, "isolation_level": None, "cached_statements": 8}
    connection = sqlite3.connect(uri, uri=path is not None, **options)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    if tables:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("BEGIN")
        create_tables(connection, tables)
        connection.execute("COMMIT")
    connection.execute("PRAGMA temp_store = MEMORY")
    for limit, value in _LIMITS.items():
        connection.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{limit}"), value)
    if sqlite3.sqlite_version_info < (3, 44):  # 3.44 has it built in
        connection.create_function("concat", -1, _concat, deterministic=True)
    connection.set_authorizer(_guard)
    return connection


def _concat(*values: Any) -> str:
    return "".join(str(value) for value in values if value is not None)[: _LIMITS["LENGTH"]]


def run_query(db: sqlite3.Connection, query: str, deadline: float, most: int) -> tuple[int, list[Row]]:
    """Return the width and at most `most` + 1 rows; floats are rounded to hide the order of additions."""
    if time.monotonic() > deadline:
        raise TimeoutError
    db.set_progress_handler(lambda: time.monotonic() > deadline, 200)
    try:
        with closing(db.execute(query)) as cursor:
            rows, width = cursor.fetchmany(most + 1), len(cursor.description or ())
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise TimeoutError from None
        raise
    finally:
        db.set_progress_handler(None, 0)
    if any(isinstance(v, float) for row in rows for v in row):
        rows = [tuple(float(f"{v:.9g}") if isinstance(v, float) else v for v in row) for row in rows]
    return width, rows

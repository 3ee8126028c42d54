"""Spider's training questions as items: the schema as CREATE TABLE text, and a cheap test that a query shows
something.

The test runs the reference on an empty and on populated databases made for it; it takes a hundredth of a
second where the full verifier takes a tenth. What differs nowhere goes to the full verifier. Databases of the
development set are left out.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smopd.data import lic
from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_array, text_of
from smopd.errors import UserError

TRAIN = ("spider/train_spider_slim.json", "spider/train_spider.json")
TABLES = "spider/tables.json"
DEV = "spider/dev.json"
_KINDS = {"number": "REAL", "time": "DATETIME", "boolean": "BOOL"}
_TRIES = 10  # populated databases
_STEPS = 2_000_000  # of SQLite's machine: a limit that is the same on every computer


def spider_ddl(entry: Mapping[str, Any]) -> str:
    """CREATE TABLE text for one entry of tables.json."""
    tables, columns = entry["table_names_original"], entry["column_names_original"]
    lines: list[list[str]] = [[] for _ in tables]
    for (table, column), kind in zip(columns, entry["column_types"], strict=True):
        if table >= 0:
            lines[table].append(f'"{column}" {_KINDS.get(kind, "TEXT")}')
    for key in entry["primary_keys"]:
        for column in key if isinstance(key, list) else [key]:  # Spider 2020 lists keys of several columns
            lines[columns[column][0]].append(f'PRIMARY KEY ("{columns[column][1]}")')
    for child, parent in entry["foreign_keys"]:
        target = f'"{tables[columns[parent][0]]}" ("{columns[parent][1]}")'
        lines[columns[child][0]].append(f'FOREIGN KEY ("{columns[child][1]}") REFERENCES {target}')
    return "\n".join(
        f'CREATE TABLE "{name}" ({", ".join(parts)});' for name, parts in zip(tables, lines, strict=True)
    )


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every question of the training file; `spider/train/120` is its item 121."""
    path, tables = need(raw, "database", *TRAIN), need(raw, "database", TABLES)
    needed = (
        "db_id",
        "table_names_original",
        "column_names_original",
        "column_types",
        "primary_keys",
        "foreign_keys",
    )
    schemas = {row["db_id"]: spider_ddl(row) for _, row in read_array(tables, needed)}
    items = []
    for number, (where, row) in enumerate(read_array(path, ("question", "query", "db_id"))):
        if row["db_id"] not in schemas:
            raise UserError(f"{where}, field 'db_id': {row['db_id']!r} is not in {tables}")
        ddl, text = schemas[row["db_id"]], normalise(text_of(row, "question", where))
        answer = {"reference_sql": text_of(row, "query", where), "schema_sql": ddl, "db_id": row["db_id"]}
        file = str(path.relative_to(raw))
        items.append(
            Item(
                f"spider/train/{number}",
                "database",
                lic.DATABASE.format(schema=ddl),
                text,
                text,
                answer,
                file,
                row["query"],
            )
        )
    return items


def shows_something(answer: Mapping[str, Any]) -> str | None:
    """Why a reference cannot serve, None if it runs and its result differs from database to database."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    from smopd.seeds import rng
    from smopd.verify.synthetic_db import EMPTY, PROFILES, Facts, parse_schema, query_facts, synthesise

    query, schema = answer["reference_sql"], parse_schema(answer["schema_sql"])
    try:
        facts = query_facts(sqlglot.parse_one(query, read="sqlite"), schema)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        facts = Facts(tables=set(schema))
    empty = None
    for number in range(_TRIES + 1):
        profile = PROFILES[number % len(PROFILES)] if number else EMPTY
        rows = synthesise(schema, facts, profile, rng("reference", query, number))
        try:
            result = _run(query, {name: (list(schema[name].columns), some) for name, some in rows.items()})
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            return (
                "the reference runs too long" if "interrupt" in str(error) else "the reference does not run"
            )
        if number == 0:
            empty = result
        elif result != empty:
            return None
    return _verified(answer)


def _run(query: str, tables: Mapping[str, tuple[list[str], list[tuple[Any, ...]]]]) -> str:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for name, (columns, rows) in tables.items():
            connection.execute(
                f'CREATE TABLE "{name}" ({", ".join(f"{chr(34)}{c}{chr(34)}" for c in columns)})'
            )
            connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)
        connection.set_progress_handler(lambda: True, _STEPS)
        return repr(connection.execute(query).fetchmany(100_000))
    finally:
        connection.close()


def _verified(answer: Mapping[str, Any]) -> str | None:
    from smopd.verify.database import verify_database

    right = verify_database(answer, answer["reference_sql"], timeout=60.0).correct
    return None if right else "the reference gives the same result on every database"

"""Spider's training questions as items, the schema as CREATE TABLE text.

Databases of the development set are left out.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_rows
from smopd.verify.task import Record
from smopd.verify.tasks.database import SCHEMA, SYSTEM

TRAIN = ("spider/train_spider_slim.json", "spider/train_spider.json")
TABLES = "spider/tables.json"
DEV = "spider/dev.json"
_KINDS = {"number": "REAL", "time": "DATETIME", "boolean": "BOOL"}


def spider_ddl(entry: Mapping[str, Any] | Record) -> str:
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
    pairs = zip(tables, lines, strict=True)
    return "\n".join(f'CREATE TABLE "{name}" ({", ".join(parts)});' for name, parts in pairs)


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every question of the training file; `spider/train/120` is its item 121."""
    path, tables = need(raw, "database", *TRAIN), need(raw, "database", TABLES)
    schemas = {row["db_id"]: spider_ddl(row) for row in read_rows(tables)}
    items = []
    for number, row in enumerate(read_rows(path)):
        if (database := row["db_id"]) not in schemas:
            raise row.error("db_id", f"{database!r} is not in {tables}")
        text, query = normalise(row.text("question")), row.text("query")
        answer = {"reference_sql": query, "schema_sql": schemas[database], "db_id": database}
        id, system, file = f"spider/train/{number}", SCHEMA.fill(SYSTEM, answer), str(path.relative_to(raw))
        items.append(Item(id, "database", system, text, text, answer, file, query))
    return items

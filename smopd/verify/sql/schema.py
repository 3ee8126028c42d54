"""Read CREATE TABLE leniently, as some published statements are invalid; ignore CHECK and DEFAULT."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Key = tuple[str, str]  # table and column, in lower case

_NAME = r"(\"[^\"]+\"|`[^`]+`|\[[^\]]+\]|[^\s,()]+)"
_CREATE = re.compile(rf"create\s+table\s+(?:if\s+not\s+exists\s+)?{_NAME}\s*\(")
_PIECE = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[(),]|[^'\"`(),]+|.", re.DOTALL)
_TYPES = (
    r"(?:(?:big|small|tiny|medium)?int(?:eger)?|text|real|float|double|decimal|numeric|number|n?var\w*|n?char\w*"
    r"|bool\w*|date|datetime|time|timestamp|blob|bit|year|clob|others|boolean|unsigned)\b"
)
_TYPED = re.compile(rf"(\"[^\"]+\"|`[^`]+`|\[[^\]]+\]|.+?)\s+({_TYPES}.*)", re.DOTALL)
_KEYS = re.compile(r"(?:constraint\s+\S+\s+)?(primary\s+key|unique|foreign\s+key|check)\s*\((.*)", re.DOTALL)
_REFERENCES = re.compile(rf"references\s+{_NAME}\s*(?:\(\s*{_NAME}\s*\))?")


@dataclass
class SchemaTable:
    """One table: the kind of each column (int, real, text, date) and the keys; names in lower case."""

    columns: dict[str, str] = field(default_factory=dict)
    unique: list[tuple[str, ...]] = field(default_factory=list)
    foreign: dict[str, Key] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)  # columns that are never NULL


Schema = dict[str, SchemaTable]


def parse_schema(ddl: str) -> Schema:
    schema: Schema = {}
    ddl = re.sub(r"--[^\n]*", "", ddl).lower()
    for create in _CREATE.finditer(ddl):
        table, primary = SchemaTable(), list[str]()
        for item in _items(ddl, create.end()):
            _read_item(item, table, primary)
        table.required |= set(primary)
        table.unique += [tuple(dict.fromkeys(primary))] if primary else []
        table.unique = [u for u in dict.fromkeys(table.unique) if table.columns.keys() >= set(u)]
        # SQLite's internal tables cannot be created.
        if table.columns and not _bare(create[1]).startswith("sqlite_"):
            schema[_bare(create[1])] = table
    for table in schema.values():
        targets = {c: _parent_key(schema, *key) for c, key in table.foreign.items() if c in table.columns}
        table.foreign = {column: target for column, target in targets.items() if target}
        if table.columns.keys() == table.foreign.keys():
            # In a pure link table every foreign key is required, and no single one is a key.
            table.required |= table.foreign.keys()
            table.unique = [u for u in table.unique if len(u) > 1 or len(table.columns) == 1]
    return schema


def _bare(name: str) -> str:
    return name.strip().strip('"`[]').strip()


def _items(ddl: str, at: int) -> Iterator[str]:
    """Yield the comma-separated items of the bracket that opened just before `at`."""
    depth, item = 1, ""
    for piece in _PIECE.finditer(ddl, at):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if depth == 0 or (depth == 1 and piece[0] == ","):
            yield item.strip()
            item = ""
        else:
            item += piece[0]
        if depth == 0:
            return


def _read_item(item: str, table: SchemaTable, primary: list[str]) -> None:
    reference = _REFERENCES.search(item)
    if key := _KEYS.match(item):
        columns = tuple(_bare(c) for c in key[2].split(")", 1)[0].split(","))
        if key[1].startswith("primary"):
            primary.extend(columns)
        elif key[1] == "unique":
            table.unique.append(columns)
    elif item:
        typed = _TYPED.fullmatch(item)
        name, rest = (_bare(typed[1]), typed[2]) if typed else (_bare(item.split()[0]), item)
        columns = (name,)
        table.columns[name] = _kind(rest.split("(")[0].split()[0]) if typed else "text"
        primary += columns * ("primary key" in rest)
        table.required |= {name} if "not null" in rest else set()
        table.unique += [columns] if re.search(r"\bunique\b", rest) else []
    if item and reference and len(columns) == 1:
        table.foreign[columns[0]] = (_bare(reference[1]), _bare(reference[2] or ""))


def _kind(type_name: str) -> str:
    if "int" in type_name or type_name in ("year", "bit") or type_name.startswith("bool"):
        return "int"
    if any(word in type_name for word in ("real", "floa", "doub", "deci", "num")):
        return "real"
    return "date" if "date" in type_name or "time" in type_name else "text"


def _parent_key(schema: Schema, parent: str, key: str) -> Key | None:
    table = schema.get(parent, SchemaTable())
    keys = [key] if key in table.columns else [u[0] for u in table.unique if len(u) == 1]
    return (parent, keys[0]) if keys else None

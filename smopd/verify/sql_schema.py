"""A lenient reader of CREATE TABLE text (some published is not valid SQL), and what a query looks at."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

Key = tuple[str, str]  # table and column, in lower case

# --- schemas
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
class Table:
    """One table: the kind of each column (int, real, text, date), and its keys; names in lower case."""

    columns: dict[str, str] = field(default_factory=dict)
    unique: list[tuple[str, ...]] = field(default_factory=list)
    foreign: dict[str, Key] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)  # columns that are never NULL


Schema = dict[str, Table]


def parse_schema(ddl: str) -> Schema:
    """Read CREATE TABLE statements, also with unquoted odd names and a primary key declared twice."""
    schema: Schema = {}
    ddl = re.sub(r"--[^\n]*", "", ddl).lower()
    for create in _CREATE.finditer(ddl):
        table, primary = Table(), list[str]()
        for item in _items(ddl, create.end()):
            _read_item(item, table, primary)
        if primary:
            table.unique.append(tuple(dict.fromkeys(primary)))
            table.required |= set(primary)
        table.unique = [u for u in dict.fromkeys(table.unique) if table.columns.keys() >= set(u)]
        # SQLite's own tables can't be created, nor does a query mean them.
        if table.columns and not _bare(create[1]).startswith("sqlite_"):
            schema[_bare(create[1])] = table
    for table in schema.values():
        targets = {c: _parent_key(schema, *key) for c, key in table.foreign.items() if c in table.columns}
        table.foreign = {column: target for column, target in targets.items() if target}
        if table.columns.keys() == table.foreign.keys():
            # A table of nothing but links: a row without one would link nothing.
            table.required |= table.foreign.keys()
    return schema


def _bare(name: str) -> str:
    return name.strip().strip('"`[]').strip()


def _items(ddl: str, at: int) -> Iterator[str]:
    """What stands between the commas of the bracket that opened just before `at`."""
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


def _read_item(item: str, table: Table, primary: list[str]) -> None:
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
    table = schema.get(parent, Table())
    keys = [key] if key in table.columns else [u[0] for u in table.unique if len(u) == 1]
    return (parent, keys[0]) if keys else None


# --- what a query looks at
_PATTERNS = (exp.Like, exp.ILike, exp.Glob)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Between, exp.In, *_PATTERNS)


@dataclass
class Facts:
    """What data must hold for a query to show what it does."""

    tables: set[str] = field(default_factory=set)
    constants: set[tuple[Key, str, bool]] = field(default_factory=set)  # column, text, is it a pattern
    links: set[frozenset[Key]] = field(default_factory=set)  # columns that are compared with each other
    numeric: set[Key] = field(default_factory=set)  # columns that are added up, whatever their type
    # Columns of NOT IN (SELECT ...): nobody means the result that one NULL gives.
    solid: set[Key] = field(default_factory=set)
    most: int = 0  # the largest LIMIT or COUNT threshold

    def __or__(self, other: "Facts") -> "Facts":
        mine, theirs = vars(self), vars(other)
        both = {name: mine[name] | theirs[name] for name in mine if name != "most"}
        return Facts(**both, most=max(self.most, other.most))


def query_facts(tree: exp.Expr, schema: Schema) -> Facts:
    """What a parsed query compares, joins, adds up and counts."""
    facts = Facts(tables={t.name.lower() for t in tree.find_all(exp.Table)} & schema.keys())
    for node in tree.walk():
        if isinstance(node, _COMPARISONS):
            _read_comparison(node, schema, facts)
        elif isinstance(node, (exp.Sum, exp.Avg, exp.Add, exp.Sub, exp.Mul, exp.Div)):
            facts.numeric |= {k for c in node.find_all(exp.Column) for k in _resolve(c, schema)}
        elif isinstance(node, (exp.Limit, exp.Offset)):
            facts.most = max(facts.most, _number(node.expression))
        elif isinstance(node, exp.SetOperation):
            for pair in zip(_outputs(node.left, schema), _outputs(node.right, schema), strict=False):
                _link(facts, *pair)
        elif isinstance(node, exp.Join) and node.args.get("using"):
            for name in (using.name.lower() for using in node.args["using"]):
                _link(facts, {(t, name) for t in facts.tables if name in schema[t].columns})
    return facts


def _read_comparison(node: exp.Expr, schema: Schema, facts: Facts) -> None:
    parts = [node.args.get(name) for name in ("this", "expression", "query", "low", "high")]
    sides = [part for part in [*parts, *(node.args.get("expressions") or ())] if isinstance(part, exp.Expr)]
    columns, constants = set[Key](), list[str]()
    for side in sides:
        inner = side.unnest()
        if isinstance(inner, exp.Query):
            outputs = _outputs(inner, schema)
            columns |= outputs[0] if outputs else set()
            if isinstance(node, exp.In) and isinstance(node.parent, exp.Not):
                facts.solid |= columns
            continue
        if side.find(exp.Count):
            facts.most = max([facts.most, *(_number(s) for s in sides)])
            continue
        for leaf in side.find_all(exp.Literal, exp.Column):
            if not isinstance(leaf, exp.Column):
                constants.append(f"-{leaf.this}" if isinstance(leaf.parent, exp.Neg) else str(leaf.this))
            elif found := _resolve(leaf, schema):
                columns |= found
            elif leaf.this.args.get("quoted"):
                constants.append(leaf.name)  # "x" is a text where no column has that name
    pattern = isinstance(node, _PATTERNS)
    facts.constants |= {(column, constant, pattern) for column in columns for constant in constants}
    _link(facts, columns)


def _link(facts: Facts, *groups: set[Key]) -> None:
    if len(together := frozenset().union(*groups)) > 1:
        facts.links.add(together)


def _outputs(query: exp.Expr, schema: Schema) -> list[set[Key]]:
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        pairs = zip(_outputs(query.left, schema), _outputs(query.right, schema), strict=False)
        return [a | b for a, b in pairs]
    if not isinstance(query, exp.Select):
        return []
    return [{k for c in e.find_all(exp.Column) for k in _resolve(c, schema)} for e in query.expressions]


def _resolve(column: exp.Column, schema: Schema) -> set[Key]:
    """The schema's columns a reference may mean: the nearest query around it that has one."""
    name, table = column.name.lower(), column.table.lower()
    scope = column.find_ancestor(exp.Select)
    while scope is not None:
        sources = [s for s in (scope.args.get("from_"), *(scope.args.get("joins") or ())) if s is not None]
        named = [t for source in sources for t in source.find_all(exp.Table)]
        tables = [t.name.lower() for t in named if table in ("", t.alias_or_name.lower())]
        if found := {(t, name) for t in tables if t in schema and name in schema[t].columns}:
            return found
        scope = scope.find_ancestor(exp.Select)
    return set()


def _number(node: Any) -> int:
    digits = str(node.this) if isinstance(node, exp.Literal) else ""
    return int(digits) if digits.isdigit() and len(digits) < 6 else 0

"""Small databases for a schema that tell a wrong query from a right one, for lack of the real ones.

Three parts: a lenient reader of CREATE TABLE text (some published schemas are not valid SQL), what a query
looks at (its tables, constants, joined columns, thresholds), and rows drawn so that these matter: constants
and near misses, few distinct values (ties, duplicates), parents without children, NULLs where allowed, groups
as large as the thresholds. Keys hold, no foreign key dangles. It leaves out CHECK constraints, defaults, and
any likeness to real data.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

Key = tuple[str, str]  # table and column, in lower case
Value = str | int | float | None

# --- schemas
# ----------------------------------------------------------------------------------------------------------
_NAME = r"(\"[^\"]+\"|`[^`]+`|\[[^\]]+\]|[^\s,()]+)"
_CREATE = re.compile(rf"create\s+table\s+(?:if\s+not\s+exists\s+)?{_NAME}\s*\(")
_PIECE = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|[(),]|[^'\"`(),]+|.", re.DOTALL)
_TYPES = r"(?:(?:big|small|tiny|medium)?int(?:eger)?|text|real|float|double|decimal|numeric|number|n?var\w*|n?char\w*|bool\w*|"
_TYPES += r"date|datetime|time|timestamp|blob|bit|year|clob|others|boolean|unsigned)\b"
_TYPED = re.compile(rf"(\"[^\"]+\"|`[^`]+`|\[[^\]]+\]|.+?)\s+({_TYPES}.*)", re.DOTALL)
_KEYS = re.compile(r"(?:constraint\s+\S+\s+)?(primary\s+key|unique|foreign\s+key|check)\s*\((.*)", re.DOTALL)
_REFERENCES = re.compile(rf"references\s+{_NAME}\s*(?:\(\s*{_NAME}\s*\))?")


@dataclass
class Table:
    """One table: the kind of each column (int, real, text, date), and its keys. Names are in lower case:
    SQLite does not mind.
    """

    columns: dict[str, str] = field(default_factory=dict)
    unique: list[tuple[str, ...]] = field(default_factory=list)
    foreign: dict[str, Key] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)  # columns that are never NULL


Schema = dict[str, Table]


def parse_schema(ddl: str) -> Schema:
    """Read CREATE TABLE statements, also with names that SQL would want quoted and with a primary key
    declared twice.
    """
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
        if table.columns and not _bare(create[1]).startswith(
            "sqlite_"
        ):  # SQLite's own tables can't be created, nor does a query mean them
            schema[_bare(create[1])] = table
    for table in schema.values():
        targets = {
            column: _parent_key(schema, *target)
            for column, target in table.foreign.items()
            if column in table.columns
        }
        table.foreign = {column: target for column, target in targets.items() if target}
        if table.columns.keys() == table.foreign.keys():
            table.required |= (
                table.foreign.keys()
            )  # a table of nothing but links: a row without one would link nothing
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
    """One column or one constraint."""
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
    if (table := schema.get(parent)) is None:
        return None
    if key in table.columns:
        return parent, key
    return next(((parent, u[0]) for u in table.unique if len(u) == 1), None)


# --- what a query looks at
# --------------------------------------------------------------------------------------------
_PATTERNS = (exp.Like, exp.ILike, exp.Glob)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Between, exp.In, *_PATTERNS)


@dataclass
class Facts:
    """What data must hold for a query to show what it does."""

    tables: set[str] = field(default_factory=set)
    constants: set[tuple[Key, str, bool]] = field(default_factory=set)  # column, text, is it a pattern
    links: set[frozenset[Key]] = field(default_factory=set)  # columns that are compared with each other
    numeric: set[Key] = field(default_factory=set)  # columns that are added up, whatever their type
    solid: set[Key] = field(
        default_factory=set
    )  # columns of NOT IN (SELECT ...): nobody means the result that one NULL gives
    most: int = 0  # the largest LIMIT or COUNT threshold

    def __or__(self, other: "Facts") -> "Facts":
        return Facts(
            self.tables | other.tables, self.constants | other.constants, self.links | other.links, self.numeric | other.numeric,
            self.solid | other.solid, max(self.most, other.most),
        )  # fmt: skip


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
            for name in node.args["using"]:
                _link(
                    facts,
                    {(t, name.name.lower()) for t in facts.tables if name.name.lower() in schema[t].columns},
                )
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
    """The columns behind each output of a query."""
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
        tables = [
            t.name.lower()
            for s in sources
            for t in s.find_all(exp.Table)
            if table in ("", t.alias_or_name.lower())
        ]
        if found := {(t, name) for t in tables if t in schema and name in schema[t].columns}:
            return found
        scope = scope.find_ancestor(exp.Select)
    return set()


def _number(node: Any) -> int:
    return (
        int(node.this)
        if isinstance(node, exp.Literal) and str(node.this).isdigit() and len(node.this) < 6
        else 0
    )


# --- rows
# -------------------------------------------------------------------------------------------------------------
_WORDS = (
    "ash",
    "birch",
    "Cedar",
    "dogwood",
    "elm",
    "fir",
    "Ginkgo",
    "hazel",
    "iris",
    "kapok",
    "larch",
    "Maple",
    "oak",
)
_MOST_ROWS = 300


@dataclass(frozen=True)
class Profile:
    """The character of one database."""

    rows: int  # per table that the query names; 0 leaves them all empty
    variety: int  # distinct values per column beside the planted ones
    planted: float  # how often a value is a constant of the query or a near miss
    nulls: float
    childless: bool = False  # tables with foreign keys stay empty


PROFILES = (
    Profile(14, 5, 0.5, 0.0), Profile(20, 3, 0.75, 0.0), Profile(14, 6, 0.5, 0.15), Profile(30, 25, 0.3, 0.0),
    Profile(9, 2, 0.6, 0.1), Profile(24, 4, 0.9, 0.0), Profile(4, 6, 0.6, 0.0), Profile(40, 8, 0.6, 0.05),
)  # fmt: skip
EMPTY, CHILDLESS = Profile(0, 1, 0.0, 0.0), Profile(9, 5, 0.6, 0.0, childless=True)


def synthesise(
    schema: Schema, facts: Facts, profile: Profile, draw: random.Random
) -> dict[str, list[tuple[Value, ...]]]:
    """Rows for every table of the schema, in the order of its columns."""
    pools = _Pools(schema, facts, profile, draw)
    central = set(facts.tables)
    while more := {p for n in central for p, _ in schema[n].foreign.values()} - central:
        central |= more  # parents too: the children's keys come from them
    done: dict[str, list[dict[str, Value]]] = {}
    for name in _parents_first(schema):
        table = schema[name]
        wanted = profile.rows if name in central else min(profile.rows, 4)
        if name in central and profile.rows > 9:  # enough for the thresholds, except in the small databases
            wanted = min(_MOST_ROWS, max(wanted, 3 * facts.most))
        if profile.childless and table.foreign:
            wanted = 0
        done[name] = _rows(name, table, draw.randint((wanted + 1) // 2, wanted), done, pools)
    return {
        name: [tuple(row[c] for c in schema[name].columns) for row in rows] for name, rows in done.items()
    }


def _parents_first(schema: Schema) -> list[str]:
    order: list[str] = []
    waiting = dict(schema)
    while waiting:
        free = [
            n for n, t in waiting.items() if not any(p in waiting and p != n for p, _ in t.foreign.values())
        ]
        for name in free or [next(iter(waiting))]:  # where keys go round in a circle, start anywhere
            order.append(name)
            del waiting[name]
    return order


def _rows(
    name: str, table: Table, count: int, done: Mapping[str, list[dict[str, Value]]], pools: "_Pools"
) -> list[dict[str, Value]]:
    draw = pools.draw
    sources: dict[str, Sequence[Value]] = {}
    for column, (parent, key) in table.foreign.items():
        if parent not in done and parent != name:
            continue  # keys that go round in a circle: this one comes from the pool
        values = [v for row in done.get(parent, ()) if (v := row[key]) is not None]
        draw.shuffle(values)
        values.sort(
            key=lambda v: not pools.exact((name, column), v)
        )  # a key that the query asks for has many children
        enough = (
            3 * count // (pools.most + 1)
        )  # so few parents that some have as many children as a threshold asks for
        sources[column] = values[
            : max(1, min(len(values) * 2 // 3, enough))
        ]  # the others stay without children
    singles = {u[0] for u in table.unique if len(u) == 1}
    fresh = {c: pools.distinct((name, c), count) for c in singles - sources.keys()}
    rows: list[dict[str, Value]] = []
    seen: set[tuple[Any, ...]] = set()
    for _ in range(count):
        old = (
            draw.choice(rows) if rows and draw.random() < 0.2 else None
        )  # a second row that differs in its keys at most
        row: dict[str, Value] = {}
        pools.fitting = draw.random() < pools.profile.planted / 2
        for column in table.columns:
            nullable = (
                column not in table.required and (name, column) not in pools.solid and column not in singles
            )
            if column in fresh:
                row[column] = fresh[column].pop()
            elif old is not None and draw.random() < (0.5 if column in sources else 0.9):
                row[column] = old[column]
            elif nullable and draw.random() < pools.profile.nulls:
                row[column] = None
            elif column in sources:
                own = (
                    [r[key] for r in rows]
                    if (key := table.foreign[column][1]) and table.foreign[column][0] == name
                    else []
                )
                choices = own or sources[column]
                row[column] = (
                    choices[int(len(choices) * draw.random() ** 2)] if choices else None
                )  # some have many children
            else:
                row[column] = pools.pick((name, column))
        if any(row[c] is None for c in sources if c in table.required):
            continue  # a required parent that does not exist
        keys = {(u, tuple(row[c] for c in u)) for u in table.unique if all(row[c] is not None for c in u)}
        if not keys & seen:
            seen |= keys
            rows.append(row)
    return rows


class _Pools:
    """The values each column draws from: columns that are compared with each other draw from one pool."""

    def __init__(self, schema: Schema, facts: Facts, profile: Profile, draw: random.Random) -> None:
        self.profile, self.draw, self.solid, self.most = profile, draw, facts.solid, facts.most
        self._group: dict[Key, Key] = {(n, c): (n, c) for n, t in schema.items() for c in t.columns}
        for name, table in schema.items():
            for column, target in table.foreign.items():
                self._join([(name, column), target])
        for link in sorted(map(sorted, facts.links)):
            self._join([k for k in link if k in self._group])
        self._kinds: dict[Key, str] = {}
        ranks = ("text", "date", "real", "int")
        for name, table in schema.items():
            for column, kind in table.columns.items():
                group = self._find((name, column))
                kind = "real" if (name, column) in facts.numeric and kind in ("text", "date") else kind
                self._kinds[group] = max(kind, self._kinds.get(group, kind), key=ranks.index)
        self.fitting = (
            False  # whether a row is meant to satisfy all comparisons with constants, or each by chance
        )
        self._planted: dict[Key, list[Value]] = {}
        self._exact: dict[Key, list[Value]] = {}
        for key, constant, pattern in sorted(facts.constants):
            group = self._find(key)
            near = _matches(constant, draw) if pattern else _near(constant, self._kinds[group])
            self._planted.setdefault(group, []).extend(near)
            self._exact.setdefault(group, []).extend(near[:4] if pattern else near[:1])
        self._filler: dict[Key, list[Value]] = {}

    def _find(self, key: Key) -> Key:
        while self._group[key] != key:
            key = self._group[key]
        return key

    def _join(self, keys: Sequence[Key]) -> None:
        for key in keys[1:]:
            self._group[self._find(key)] = self._find(keys[0])

    def pick(self, key: Key) -> Value:
        """One value, likely not the only one of its kind."""
        group = self._find(key)
        planted = self._planted.get(group)
        if planted and self.fitting and self.draw.random() < 0.9:
            return self.draw.choice(self._exact[group])
        if planted and self.draw.random() < self.profile.planted:
            return self.draw.choice(planted)
        if group not in self._filler:
            size = int(
                self.profile.variety * self.draw.choice((0.5, 1, 1, 4))
            )  # ties in one column where another has few
            self._filler[group] = [self._fill(group, i) for i in range(max(2, size))]
        return self.draw.choice(self._filler[group])

    def exact(self, key: Key, value: Value) -> bool:
        """Whether the query compares the column with this very value."""
        return value in self._exact.get(self._find(key), ())

    def distinct(self, key: Key, count: int) -> list[Value]:
        """Values for a column that is a key."""
        group = self._find(key)
        planted = list(dict.fromkeys([*self._planted.get(group, ()), *self._filler.get(group, ())]))
        self.draw.shuffle(planted)
        kind, start = self._kinds[group], self.draw.randint(1, 5)
        number = kind in ("int", "real")
        others: list[Value] = [
            i + start if number else f"{_WORDS[i % len(_WORDS)]}{i}" for i in range(2 * count)
        ]
        self.draw.shuffle(others)
        values = list(dict.fromkeys([*planted[: (count + 1) // 2], *others]))[:count]
        self.draw.shuffle(values)
        self._filler.setdefault(group, []).extend(
            values
        )  # for columns that are joined to it without a foreign key
        return values

    def _fill(self, group: Key, index: int) -> Value:
        kind, draw = self._kinds[group], self.draw
        if kind in ("int", "real"):
            near = [v for v in self._planted.get(group, ()) if isinstance(v, (int, float))]
            number: int | float = draw.randint(1, 2 * self.profile.variety)
            if near:
                number = draw.choice(near) + draw.choice((-1, 1)) * draw.choice((2, 3, 10, 50))
            return number + draw.choice((0, 0.25, 0.5)) if kind == "real" else int(number)
        if kind == "date":
            return f"{draw.randint(1960, 2020)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        return draw.choice(_WORDS) if index else f"{draw.choice(_WORDS)} {draw.choice(_WORDS)}"


def _near(constant: str, kind: str) -> list[Value]:
    """A constant and what a slightly different comparison would take for it."""
    try:
        number = float(constant)
        exact: int | float = int(number) if number.is_integer() else number
    except (ValueError, OverflowError):
        near: list[Value] = [
            constant,
            constant,
            constant.swapcase(),
            constant.lower(),
            constant + "s",
            constant[:-1],
        ]
        if len(constant) > 3 and constant[-1].isdigit():  # a date: the days around it
            near += [constant[:-1] + str((int(constant[-1]) + step) % 10) for step in (1, 9)]
        return near
    if kind in ("int", "real"):
        return [exact, exact, exact - 1, exact + 1, *((exact + 0.5, exact - 0.5) if kind == "real" else ())]
    days: list[Value] = [f"{exact}-06-15", f"{exact}-12-31"] if 1000 <= exact < 3000 else []
    return [constant, constant, str(exact - 1), str(exact + 1), *days]


def _matches(pattern: str, draw: random.Random) -> list[Value]:
    """Texts that match a LIKE (or GLOB) pattern, and texts that nearly do."""
    wild = {"%": ("", "oak ", " elm", "x"), "*": ("", "oak", "x"), "_": ("a", "Z"), "?": ("a", "Z")}
    texts = ["".join(draw.choice(wild.get(c, (c,))) for c in pattern) for _ in range(4)]
    core = re.sub(r"[%*]", "", pattern).replace("_", "a").replace("?", "a")
    return [
        *texts,
        core,
        core.swapcase(),
        core[:-1],
        core[1:],
        f"w{core}",
        f"{core}w",
        f"w {core} w",
        core[: len(core) // 2],
    ]

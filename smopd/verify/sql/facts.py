"""Extract from a query the facts that decide which data would show what it does.

This reading of the syntax tree is approximate: it shapes synthetic databases and never decides a verdict.
"""

from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from smopd.verify.sql.schema import Key, Schema

Constant = tuple[Key, str, str]  # column, operator (see _OPERATORS), constant as text

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.Is: "=",
    exp.In: "=", exp.Like: "like", exp.ILike: "like", exp.Glob: "like",
}  # fmt: skip
_COMPARISONS = (*_OPERATORS, exp.Between)
_TURNED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}  # for a constant on the left: 5 < age
NEGATED = {"=": "!=", "!=": "=", ">": "<=", "<=": ">", "<": ">=", ">=": "<", "like": "unlike"}
_PERSONS = ("first_name", "last_name", "fname", "lname")  # stand for a person in INTERSECT and EXCEPT


@dataclass
class QueryFacts:
    tables: set[str] = field(default_factory=set)
    constants: set[Constant] = field(default_factory=set)
    links: set[frozenset[Key]] = field(default_factory=set)  # columns compared with each other
    numeric: set[Key] = field(default_factory=set)  # columns used in arithmetic, whatever their type
    extremes: set[tuple[Key, bool]] = field(default_factory=set)  # in ORDER BY, MAX, MIN; True: the largest
    once: set[Key] = field(default_factory=set)  # columns whose duplicates a DISTINCT drops
    nulls: set[Key] = field(default_factory=set)  # columns that should hold NULLs
    names: set[Key] = field(default_factory=set)  # columns that identify a row by name (see _is_name)
    repeated: set[Key] = field(default_factory=set)  # columns with repeated values, whatever the schema says
    most: int = 0  # the largest number that a COUNT is compared with
    limit: int = 0  # the largest LIMIT or OFFSET

    def __or__(self, other: "QueryFacts") -> "QueryFacts":
        mine, theirs = vars(self), vars(other)
        both = {name: mine[name] | theirs[name] for name in mine if isinstance(mine[name], set)}
        return QueryFacts(**both, most=max(self.most, other.most), limit=max(self.limit, other.limit))


def query_facts(tree: exp.Expr, schema: Schema) -> QueryFacts:
    facts = QueryFacts(tables={t.name.lower() for t in tree.find_all(exp.Table)} & schema.keys())
    for node in tree.walk():
        if isinstance(node, _COMPARISONS):
            _read_comparison(node, schema, facts)
        elif isinstance(node, (exp.Sum, exp.Avg, exp.Add, exp.Sub, exp.Mul, exp.Div)):
            facts.numeric |= resolve_all(node, schema)
        elif isinstance(node, (exp.Limit, exp.Offset)):
            facts.limit = max(facts.limit, _number(node.expression))
        elif isinstance(node, exp.SetOperation):
            for pair in zip(_outputs(node.left, schema), _outputs(node.right, schema), strict=False):
                _link(facts, *pair)
        elif isinstance(node, exp.Join) and node.args.get("using"):
            for name in (using.name.lower() for using in node.args["using"]):
                _link(facts, {(t, name) for t in facts.tables if name in schema[t].columns})
        if isinstance(node, (exp.Ordered, exp.Max, exp.Min)) and isinstance(node.this, exp.Column):
            largest = isinstance(node, exp.Max) or bool(node.args.get("desc"))
            facts.extremes |= {(key, largest) for key in resolve(node.this, schema)}
        if isinstance(node, exp.Distinct):
            select = node.parent_select
            within = node.expressions or (select.expressions if select else [])
            facts.once |= {k for e in within if isinstance(e, exp.Column) for k in resolve(e, schema)}
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Column):
            # NULLs tell COUNT(x) from COUNT(*), unless the rows are grouped by x.
            keys = resolve(node.this, schema) - _resolve_group_by(node.find_ancestor(exp.Select), schema)
            facts.nulls |= {(t, c) for t, c in keys if c not in schema[t].foreign.keys() | schema[t].required}
    facts.nulls -= {key for link in facts.links for key in link}
    return facts


def reference_facts(tree: exp.Expr, schema: Schema) -> QueryFacts:
    """Return `query_facts` plus the NULLs, names and repeated columns that only a reference implies."""
    facts = query_facts(tree, schema)
    for node in tree.walk():
        if isinstance(node, (exp.Is, exp.Coalesce)) and isinstance(node.this, exp.Column):
            # An IS NULL, except as a test whether a LEFT JOIN matched.
            select = node.this.find_ancestor(exp.Select)
            joins = [j for j in (select and select.args.get("joins")) or () if j.args.get("side")]
            outer = {join.this.name.lower() for join in joins if isinstance(join.this, exp.Table)}
            facts.nulls |= {key for key in resolve(node.this, schema) if key[0] not in outer}
        elif isinstance(node, exp.Join) and node.args.get("side"):
            on = node.args.get("on") or exp.true()
            facts.nulls |= resolve_all(on, schema, beside=node.alias_or_name.lower())
        elif isinstance(node, exp.Select):
            _read_select(node, schema, facts)
        elif isinstance(node, (exp.Intersect, exp.Except)):
            pairs = zip(_outputs(node.left, schema), _outputs(node.right, schema), strict=False)
            same = {key for a, b in pairs if a == b for key in a}
            people = {key for key in same if key[1] in _PERSONS and _find_referrers(key, schema, facts)}
            facts.names |= {key for key in same if _is_name(key, schema, facts)} | people
            facts.repeated |= {key for key in same if joined(key, schema, facts)}
        elif isinstance(node, exp.In) and isinstance(node.this, exp.Column) and node.args.get("query"):
            inner = (_outputs(node.args["query"], schema) or [set()])[0]
            facts.names |= {k for k in resolve(node.this, schema) & inner if _is_name(k, schema, facts)}
        elif isinstance(node, exp.EQ) and isinstance(node.this, exp.Column) and not node.find(exp.Query):
            shown = {key for keys in _outputs(tree, schema) for key in keys}
            facts.names |= {k for k in resolve(node.this, schema) - shown if _is_name(k, schema, facts)}
    # Several rows must be able to refer to a named row, or the question would be trivial.
    facts.repeated |= {k for name in facts.names for k in _find_referrers(name, schema, facts)}
    return facts


# --- NULLs and duplicates
def _resolve_group_by(select: exp.Select | None, schema: Schema) -> set[Key]:
    group = select.args.get("group") if select else None
    return resolve_all(group, schema) if group else set()


def _read_select(select: exp.Select, schema: Schema, facts: QueryFacts) -> None:
    grouped = _resolve_group_by(select, schema)
    facts.names |= {key for key in grouped if _is_name(key, schema, facts)}
    single = select.args.get("distinct") and len(select.expressions) == 1 and select.expressions[0]
    alone = resolve(single, schema) if isinstance(single, exp.Column) else set[Key]()
    for count in select.find_all(exp.Count):
        if isinstance(count.this, exp.Distinct) and isinstance(count.this.expressions[0], exp.Column):
            alone |= resolve(count.this.expressions[0], schema)
    if any(e.find(exp.AggFunc) for e in select.expressions) and (where := select.args.get("where")):
        for equal in where.find_all(exp.EQ):
            if isinstance(equal.this, exp.Column) and isinstance(equal.expression, exp.Literal):
                alone |= resolve(equal.this, schema)  # nobody counts rows by a unique value
    facts.repeated |= {key for key in grouped | alone if joined(key, schema, facts)}


def joined(key: Key, schema: Schema, facts: QueryFacts) -> bool:
    """Whether a column refers to another table, by the schema or by a comparison in the query."""
    table, column = key
    targets = {k for link in facts.links if key in link for k in link if k[0] != table}
    keys = {(t, c) for t, c in targets if (c,) in schema[t].unique and c not in schema[t].foreign}
    return column in schema[table].foreign or bool(keys)


def _is_name(key: Key, schema: Schema, facts: QueryFacts) -> bool:
    """Whether a column names a row, as shop.name does, and the query joins another table by its key."""
    table, column = key
    stems = {table, table.removesuffix("s"), table.removesuffix("es"), table.removesuffix("ies") + "y"}
    names = {"name", "full_name", "fullname", *stems, *(s + end for s in stems for end in ("_name", "name"))}
    return column in names and bool(_find_referrers(key, schema, facts))


def _find_referrers(name: Key, schema: Schema, facts: QueryFacts) -> set[Key]:
    """Return the columns of other tables that the query compares with the key of this column's table."""
    table, column = name
    keys = {(table, u[0]) for u in schema[table].unique if len(u) == 1 and u != (column,)}
    others = {k for link in facts.links if link & keys for k in link if k[0] != table}
    return {(t, c) for t, c in others if c in schema[t].foreign or (c,) not in schema[t].unique}


# --- comparisons
def _read_comparison(node: exp.Expr, schema: Schema, facts: QueryFacts) -> None:
    if isinstance(node, exp.Between):
        sides, operators = [node.args["low"], node.args["high"]], [">=", "<="]
    else:
        sides = [s for s in (node.args.get("expression"), *node.args.get("expressions", ())) if s is not None]
        operators = [_OPERATORS[type(node)]] * len(sides)
    queries = [q for q in [node.args.get("query"), node.this, *sides] if isinstance(q, exp.Expr)]
    columns = {key for query in queries for keys in _outputs(query, schema)[:1] for key in keys}
    if node.find(exp.Count) and not columns:
        facts.most = max([facts.most, *(_number(s) for s in (node.this, *sides))])
        return
    negated = isinstance(node.parent, exp.Not) or bool(node.args.get("negate"))
    constants = list[tuple[str, str]]()
    for side, operator in [(node.this, ""), *zip(sides, operators, strict=True)]:
        if isinstance(side.unnest(), exp.Query):
            continue
        for leaf in side.find_all(exp.Literal, exp.Column):
            if not isinstance(leaf, exp.Column):
                text = f"-{leaf.this}" if isinstance(leaf.parent, exp.Neg) else str(leaf.this)
            elif keys := resolve(leaf, schema):
                columns |= keys
                continue
            elif leaf.this.args.get("quoted"):
                text = leaf.name  # to SQLite, "x" is a text if no column has that name
            else:
                continue
            one = operator or _TURNED.get(operators[0] if operators else "=", "=")
            constants.append((NEGATED[one] if negated else one, text))
    facts.constants |= {(column, operator, text) for column in columns for operator, text in constants}
    _link(facts, columns)


def _link(facts: QueryFacts, *groups: set[Key]) -> None:
    if len(together := frozenset().union(*groups)) > 1:
        facts.links.add(together)


def _outputs(query: exp.Expr, schema: Schema) -> list[set[Key]]:
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        pairs = zip(_outputs(query.left, schema), _outputs(query.right, schema), strict=False)
        return [a | b for a, b in pairs]
    if not isinstance(query, exp.Select):
        return []
    return [resolve_all(expression, schema) for expression in query.expressions]


def resolve_all(tree: exp.Expr, schema: Schema, beside: str | None = None) -> set[Key]:
    """Resolve all columns of an expression except those qualified with the table `beside`."""
    columns = [c for c in tree.find_all(exp.Column) if c.table.lower() != beside]
    return {key for column in columns for key in resolve(column, schema)}


def resolve(column: exp.Column, schema: Schema) -> set[Key]:
    """Return the schema's columns that a name may mean, in the innermost enclosing query that has any."""
    name, table = column.name.lower(), column.table.lower()
    scope = column.find_ancestor(exp.Select)
    while scope is not None:
        sources = [s for s in (scope.args.get("from_"), *(scope.args.get("joins") or ())) if s is not None]
        named = [t for source in sources for t in source.find_all(exp.Table)]
        tables = [t.name.lower() for t in named if table in ("", t.alias_or_name.lower())]
        if keys := {(t, name) for t in tables if t in schema and name in schema[t].columns}:
            return keys
        scope = scope.find_ancestor(exp.Select)
    return set()


def _number(node: Any) -> int:
    digits = str(node.this) if isinstance(node, exp.Literal) else ""
    return int(digits) if digits.isdigit() and len(digits) < 6 else 0

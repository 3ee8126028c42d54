"""Queries with one change each, and when such a change can make no difference."""

import re
from collections.abc import Iterator

from sqlglot import exp, parse_one

from smopd.verify.sql.facts import resolve
from smopd.verify.sql.schema import Schema, parse_schema

FLIPPED = {exp.GT: (exp.GTE, exp.LT), exp.GTE: (exp.GT, exp.LTE), exp.LT: (exp.LTE, exp.GT),
    exp.LTE: (exp.LT, exp.GTE),
           exp.EQ: (exp.NEQ,), exp.NEQ: (exp.EQ,)}  # fmt: skip
AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Max, exp.Min)


def others(column: exp.Column, schema: Schema) -> list[exp.Column]:
    """Up to three other columns of the same table."""
    pairs = sorted(resolve(column, schema))
    names = [c for c in schema[pairs[0][0]].columns if c != pairs[0][1]][:3] if pairs else []
    return [exp.column(exp.to_identifier(name, quoted=True), table=column.table or None) for name in names]


def counted(node: exp.Count, schema: Schema) -> Iterator[exp.Count]:
    """The count of other things: of a column's values, of its different values, of another column's."""
    select, inner = node.find_ancestor(exp.Select), node.this
    tables = [t for t in select.find_all(exp.Table) if t.name.lower() in schema]
    for table in tables[:3]:
        for name in list(schema[table.name.lower()].columns)[:5]:
            column = exp.column(exp.to_identifier(name, quoted=True), table=table.alias_or_name)
            once = exp.Distinct(expressions=[column.copy()])
            yield exp.Count(this=once)
            if not isinstance(inner, exp.Distinct):
                yield exp.Count(this=column)
    if isinstance(inner, exp.Distinct):
        yield exp.Count(this=inner.expressions[0].copy())


def changes(node: exp.Expr, schema: Schema) -> Iterator[tuple[str, object]]:
    """(kind, replacement of the node) or (kind, {argument: value})."""
    within = node.find_ancestor(exp.Where, exp.Having)
    text = node.name if isinstance(node, exp.Literal) and node.is_string else None
    if isinstance(node, exp.Column) and node.this.args.get("quoted") and not resolve(node, schema):
        text = node.name
    if text is not None and within:
        for value in (
            [text.strip("%"), text[1:], text[:-1]]
            if "%" in text
            else [text + "x", text[:-1], text.swapcase()]
        ):
            yield "constant", exp.Literal.string(value)
    elif isinstance(node, exp.Literal) and within:
        yield from (("constant", exp.Literal.number(int(float(node.this)) + step)) for step in (1, -1))
    if isinstance(node, exp.Column) and node.find_ancestor(exp.Join, exp.Select).key == "join":
        yield from (("join key", other) for other in others(node, schema))
    elif isinstance(node, exp.Column) and isinstance(node.parent, exp.Select):
        yield from (("column", other) for other in others(node, schema))
    if type(node) in FLIPPED and not node.find_ancestor(exp.Join):
        yield from (
            ("comparison", k(this=node.this.copy(), expression=node.expression.copy()))
            for k in FLIPPED[type(node)]
        )
    if isinstance(node, exp.Join):
        yield from (
            ("join dropped", None),
            ("join left", {"side": "LEFT"}),
            ("join without key", {"on": None}),
        )
    if isinstance(node, exp.Ordered):
        yield "order direction", {"desc": not node.args.get("desc"), "nulls_first": None}
    if isinstance(node, exp.Order):
        yield "order removed", None
    if isinstance(node, exp.Limit):
        number = int(node.expression.this)
        for other in {number + 1, number - 1} - {0}:
            yield "limit", {"expression": exp.Literal.number(other)}
        yield "limit", None
    if isinstance(node, exp.Query) and node.parent is None and not node.args.get("limit"):
        yield "limit added", {"limit": exp.Limit(expression=exp.Literal.number(10))}
    if isinstance(node, exp.Union) and node.args.get("distinct"):
        yield "union all", {"distinct": False}
    if isinstance(node, exp.Group) and len(node.expressions) > 1:
        for left in range(len(node.expressions)):
            kept = [e.copy() for i, e in enumerate(node.expressions) if i != left]
            yield "group column dropped", {"expressions": kept}
    if isinstance(node, exp.Count):
        yield from (("counted column", other) for other in counted(node, schema))
    if isinstance(node, exp.Select):
        yield "distinct", {"distinct": None if node.args.get("distinct") else exp.Distinct()}
        yield from (
            ("group or having dropped", {"group": None, "having": None}),
            ("group or having dropped", {"having": None}),
        )
        yield "conjunct dropped", {"where": None}
    if isinstance(node, AGGREGATES):
        table = node.find_ancestor(exp.Select).args["from_"].find(exp.Table)
        columns = [
            exp.column(c, table=table.alias_or_name, quoted=True)
            for c in list(schema[table.name.lower()].columns)[:2]
        ]
        for kind in AGGREGATES:
            if kind is not type(node):
                for argument in columns if isinstance(node.this, exp.Star) else [node.this.copy()]:
                    yield "aggregate", kind(this=argument)
    if isinstance(node, (exp.And, exp.Or)) and not node.find_ancestor(exp.Join):
        yield from (("conjunct dropped", node.this.copy()), ("conjunct dropped", node.expression.copy()))
        other = exp.Or if isinstance(node, exp.And) else exp.And
        yield "and / or", other(this=node.this.copy(), expression=node.expression.copy())
    if isinstance(node, exp.SetOperation):
        for kind in {exp.Union, exp.Intersect, exp.Except} - {type(node)}:
            yield (
                "set operation",
                kind(this=node.this.copy(), expression=node.expression.copy(), distinct=True),
            )
    if isinstance(node, exp.Not) and isinstance(node.this, exp.In):
        yield "not in", node.this.copy()


def mutants(item: dict) -> Iterator[tuple[str, exp.Expr, exp.Expr, str]]:
    """Kind, the changed query, the changed node in it (or its parent), and the name the node had."""
    schema, tree = parse_schema(item["schema_sql"]), parse_one(item["reference_sql"], read="sqlite")
    seen = {tree.sql("sqlite")}
    for number, node in enumerate(tree.walk()):
        for kind, change in changes(node, schema):
            copy = tree.copy()
            spot = list(copy.walk())[number]
            if isinstance(change, dict):
                for argument, value in change.items():
                    spot.set(argument, value)
            elif spot.parent is None:
                copy = spot = change
            else:
                parent = spot.parent
                spot.replace(change) if change is not None else spot.pop()
                spot = change or parent
            if (text := copy.sql("sqlite")) not in seen:
                seen.add(text)
                yield (
                    kind,
                    copy,
                    spot,
                    ">= 1" if "COUNT(*) >= 1" in node.sql() and spot.args.get("group") else node.name,
                )


def equivalence(kind: str, spot: exp.Expr, was: str, schema: Schema) -> str:
    """Why a mutant means the same as its reference; an empty text where no rule says so."""
    select = spot if isinstance(spot, exp.Select) else spot.find_ancestor(exp.Select)
    if kind == "limit added" and not select.args.get("group") and select.expressions[0].find(exp.AggFunc):
        return "one row"
    if kind == "counted column" and isinstance(spot.this, exp.Column):
        group = select.args.get("group") or exp.Group()
        grouped = {key for column in group.find_all(exp.Column) for key in resolve(column, schema)}
        keys = resolve(spot.this, schema)
        if all(c in schema[t].required | schema[t].foreign.keys() or (t, c) in grouped for t, c in keys):
            return "a column that is never NULL"
        where = select.args.get("where") or exp.Where()
        if keys & {key for column in where.find_all(exp.Column) for key in resolve(column, schema)}:
            return "WHERE drops the NULLs"
    if kind == "counted column" and isinstance(spot.this, exp.Distinct):
        (table, column), *_ = sorted(resolve(spot.this.expressions[0], schema)) or [("", "")]
        children = {t.name.lower() for t in select.find_all(exp.Table)} - {table}
        if (column,) in schema[table].unique and not any(
            table in {parent for parent, _ in schema[child].foreign.values()} for child in children
        ):
            return "each row has a key of its own"
    if "COUNT(" in spot.sql() and spot.parent and re.search(r">= 1$", spot.parent.sql()):
        return "no group is empty"
    if kind == "union all" and spot.find_ancestor(exp.In):
        return "a set already"
    if kind == "distinct":
        shown = {
            (c.table.lower(), c.name.lower())
            for e in select.expressions
            for c in [e.unalias()]
            if isinstance(c, exp.Column)
        }
        grouped = {
            (c.table.lower(), c.name.lower()) for c in (select.args.get("group") or exp.Group()).expressions
        }
        tables = (
            [schema[t.name.lower()] for t in select.find_all(exp.Table)]
            if not select.args.get("joins")
            else []
        )
        if isinstance(select.parent, exp.SetOperation) or select.find_ancestor(exp.In):
            return "a set already"
        if not grouped and all(e.find(exp.AggFunc) for e in select.expressions):
            return "one row"
        if grouped and grouped <= shown:
            return "each group shows its key"
        if tables and any({k for u in tables[0].unique for k in u if u == (c,)} for _, c in shown):
            return "each row shows its key"
    if kind == "join left":
        name, joins = spot.alias_or_name.lower(), select.args["joins"]
        joined_columns = schema[spot.this.name.lower()].columns
        where = select.args.get("where") or exp.Where()
        if any(
            c.table.lower() == name or (not c.table and c.name.lower() in joined_columns)
            for c in where.find_all(exp.Column)
        ):
            return "WHERE drops the rows without a match"
        if any(
            c.table.lower() == name
            for j in joins[joins.index(spot) + 1 :]
            for c in j.args["on"].find_all(exp.Column)
        ):
            return "the next JOIN drops the rows without a match"
        for column in spot.args["on"].find_all(exp.Column):
            for table, key in resolve(column, schema) if column.table.lower() != name else ():
                if key in schema[table].foreign:
                    return "a foreign key has its match where no reference asks for those that have none"
        if "COUNT(*) >= 2" in select.sql():
            return "a row without a match is a group of one"
        if all(isinstance(e, exp.Sum) and e.this.table.lower() == name for e in select.expressions):
            return "a NULL adds nothing"
    if kind == "limit" and select.find_ancestor(exp.Select) and isinstance(select.parent, exp.Subquery):
        return "a scalar subquery gives its first row"
    if kind == "constant" and (
        spot.name == was or (spot.name.lower() == was.lower() and isinstance(spot.parent, exp.Like))
    ):
        return "digits have no case, and LIKE minds none"
    having = select.args.get("having")
    if (kind == "constant" and having and "COUNT(*) >= 0" in having.sql()) or (
        kind == "group or having dropped" and was == ">= 1"
    ):
        return "no group is empty"
    return ""

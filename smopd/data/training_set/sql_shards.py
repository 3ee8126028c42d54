"""Messages for a database question, made from its reference query: the goal, then columns, conditions, groups
and order, one at a time, as LiC tells its tasks.

The words come from the natural names that Spider gives its tables and columns. A query of which some part has
no plain wording (arithmetic, nested queries, a table twice) has no messages here, rather than wrong ones.

    I want to find out something about singers.
    I'm interested in the names.
    Filter by the birth year.
    It should be 1948 or 1949.
"""

import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from smopd.data.training_set.sql_query import AGGREGATES, Forms, Schema, Select, plural, require, singular

WORDING = tomllib.loads(Path(__file__).with_name("sql_shards.toml").read_text(encoding="utf-8"))
FEWEST, WANTED = 3, (4, 5)  # messages
_COMPARED: Forms = {exp.EQ: "{}", exp.NEQ: "other than {}", exp.GT: "above {}", exp.LT: "below {}"}
_COMPARED |= {exp.GTE: "at least {}", exp.LTE: "at most {}"}
_DATED: Forms = {exp.GT: "after {}", exp.GTE: "{} or later", exp.LT: "before {}", exp.LTE: "{} or earlier"}
_COUNTED: Forms = {exp.GT: "more than {}", exp.LT: "fewer than {}", exp.EQ: "exactly {}"}
_COUNTED |= {exp.GTE: "at least {}", exp.LTE: "at most {}"}
_SETS: Forms = {exp.Intersect: "also", exp.Except: "except"}


@dataclass(frozen=True)
class Utterance:
    """One thing to say: whole, or in two steps where the conversation has room."""

    whole: str
    steps: tuple[str, ...] = ()


def shard_query(query: str, schema: Schema, seed: int) -> tuple[str, ...]:
    """The messages of a query; () where some part of it has no plain wording, or there are too few."""
    chance = random.Random(seed)
    try:
        parts = list(_Wording(sqlglot.parse_one(query.rstrip("; "), read="sqlite"), schema, chance).parts())
    except (SqlglotError, RecursionError):
        return ()
    spare = chance.choice(WANTED) - len(parts)
    can_split = [i for i, part in enumerate(parts) if part.steps]
    split = set(chance.sample(can_split, max(0, min(spare, len(can_split)))))
    shards = [text for i, part in enumerate(parts) for text in (part.steps if i in split else (part.whole,))]
    return tuple(shards) if len(shards) >= FEWEST and len(set(shards)) == len(shards) else ()


class _Wording:
    """What to say of one SELECT, or of two that INTERSECT or EXCEPT combines."""

    def __init__(self, tree: exp.Expr, schema: Schema, chance: random.Random) -> None:
        self.tree, self.schema, self.chance = tree, schema, chance
        self.select = Select(tree.this if type(tree) in _SETS else tree, schema)

    def parts(self) -> list[Utterance]:
        """The goal, columns and conditions in either order, then what needs them."""
        select = self.select
        first = list(self._columns())
        second = list(self._conditions(select.where.this)) if select.where else []
        if self.chance.random() < 0.5:
            first, second = second, first
        rest = [*self._grouping(), *self._combined(), *self._order()]
        links = [self._say("linked", table=select.table_name(t)) for t in select.unsaid_tables()]
        goal = self._say("goal", subjects=plural(self.schema.tables[select.subject]))
        return [goal, *first, *second, *links, *rest]

    def _say(self, key: str, **fields: str) -> Utterance:
        """One wording of a message, and one in two steps where there are some."""
        ways = [way for way in WORDING[key] if isinstance(way, str)]
        in_steps = [way for way in WORDING[key] if not isinstance(way, str)]
        steps = tuple(_fill(text, fields) for text in self.chance.choice(in_steps)) if in_steps else ()
        return Utterance(_fill(self.chance.choice(ways), fields), steps)

    # --- columns
    def _columns(self) -> Iterator[Utterance]:
        select = self.select
        one_row = select.limit and select.limit.expression.name == "1"
        for number, item in enumerate(select.columns):
            key = "more" if number else "column"
            if isinstance(item, exp.Star):
                yield self._say("everything")
            elif isinstance(item, exp.Count):
                yield self._count(item.this, first=not number)
            elif type(item) in AGGREGATES:
                yield self._say(key, column=select.aggregate_name(item))
            else:
                name = select.name(item)
                yield self._say(key, column=name if one_row else plural(name))
        if select.tree.args.get("distinct") and not select.group:
            yield self._say("distinct")

    def _count(self, counted: exp.Expr, first: bool) -> Utterance:
        select = self.select
        if isinstance(counted, exp.Distinct):
            require(not select.group and len(counted.expressions) == 1)
            return self._say("count_column", columns=plural(select.name(counted.expressions[0])))
        require(isinstance(counted, exp.Star | exp.Column))
        if select.group:
            return self._say("count_group", rows=select.counted_name(), group=select.group_name())
        require(select.counted_table() == select.subject)
        return self._say("count" if first else "count_more")

    # --- conditions
    def _conditions(self, tree: exp.Expr) -> Iterator[Utterance]:
        for one in tree.flatten() if isinstance(tree, exp.And) else [tree]:
            one = one.unnest()
            if isinstance(one, exp.Or):
                yield self._either([side.unnest() for side in one.flatten()])
            elif isinstance(one, exp.Not):
                yield self._say("without", tables=self._absent(one.this))
            else:
                yield self._condition(*self._test(one))

    def _condition(self, name: str, test: str) -> Utterance:
        verb, rest = test.split(" ", 1)
        needs = f"{'be' if verb == 'is' else verb[:-1]} {rest}"
        return self._say("condition", column=name, test=test, needs=needs)

    def _either(self, sides: list[exp.Expr]) -> Utterance:
        require(len(sides) == 2)
        (name, test), (other, other_test) = (self._test(side) for side in sides)
        verb, rest = other_test.split(" ", 1)
        if name == other and test.startswith(f"{verb} "):
            return self._condition(name, f"{test} or {rest}")
        return self._say("either", first=f"the {name} {test}", second=f"the {other} {other_test}")

    def _absent(self, tree: exp.Expr) -> str:
        """`NOT key IN (SELECT key FROM other)`: the plural of what the subject has none of."""
        require(isinstance(tree, exp.In) and tree.args.get("query"))
        inside = Select(tree.args["query"].this, self.schema)
        inside.require_bare()
        link = inside.key(inside.columns[0]), self.select.key(tree.this)
        require(link in self.schema.links and link[1][0] == self.select.subject)
        return plural(self.schema.tables[inside.subject])

    def _test(self, tree: exp.Expr) -> tuple[str, str]:
        """A comparison as the name of its column and what holds of it: "is above 5", "contains 'a'"."""
        select, column = self.select, tree.this
        name = singular(select.name(column))
        if isinstance(tree, exp.Between):
            low, high = (select.value(tree.args[side]) for side in ("low", "high"))
            return name, f"is between {low} and {high}"
        if isinstance(tree, exp.Like):
            return name, _like(select.value(tree.expression))
        require(type(tree) in _COMPARED)
        form = _COMPARED[type(tree)]
        if isinstance(tree.expression, exp.Subquery):
            return name, f"is {form.format(self._of_all(column, tree.expression.this))}"
        if self.schema.is_date(select.key(column)):
            form = _DATED.get(type(tree), form)
        return name, f"is {form.format(select.value(tree.expression))}"

    def _of_all(self, column: exp.Column, tree: exp.Expr) -> str:
        """`(SELECT avg(age) FROM singer)`, which an age is compared with: the average of all."""
        inside = Select(tree, self.schema)
        inside.require_bare()
        require(type(inside.columns[0]) in AGGREGATES)
        require(inside.key(inside.columns[0].this) == self.select.key(column))
        return f"the {inside.aggregate_name(inside.columns[0]).split()[0]} of all"

    # --- groups, order, sets
    def _grouping(self) -> Iterator[Utterance]:
        select = self.select
        if not select.group:
            return
        counts = any(isinstance(item, exp.Count) for item in select.columns)
        if not counts and any(type(item) in AGGREGATES for item in select.columns):
            yield self._say("each_group", group=select.group_name())
        elif not counts and not select.having and not select.order:
            yield self._say("distinct")
        if not select.having:
            return
        test, group = select.having.this, select.group_name()
        require(type(test) in _COUNTED)
        number = select.value(test.expression)
        if isinstance(test.this, exp.Count):
            require(isinstance(test.this.this, exp.Star | exp.Column))
            rows, amount = select.counted_name(), _COUNTED[type(test)].format(number)
            rows = singular(rows) if number == "1" else rows
            yield self._say("having", group=group, number=amount, rows=rows)
        else:
            require(type(test.this) in AGGREGATES)
            column, needs = select.aggregate_name(test.this), _COMPARED[type(test)].format(number)
            yield self._say("having_value", group=group, column=column, test=needs)

    def _order(self) -> Iterator[Utterance]:
        select = self.select
        if not select.order:
            require(not select.limit)
            return
        require(not select.limit or len(select.order.expressions) == 1)
        # Without groups an aggregate has one row, whatever the order.
        require(select.group or not any(item.find(exp.AggFunc) for item in select.columns))
        number = select.limit.expression.name if select.limit else ""
        key = "sort" if not number else "best" if number == "1" else "first"
        for item in select.order.expressions:
            falling = bool(item.args.get("desc"))
            if isinstance(item.this, exp.Count):
                require(select.group)
                fields = {"group": select.group_name(), "rows": select.counted_name()}
                most, direction = ("most", "highest first") if falling else ("fewest", "lowest first")
                yield self._say(f"{key}_rows", direction=direction, most=most, number=number, **fields)
            else:
                column, most, direction = self._sorted_by(item.this, falling)
                yield self._say(key, direction=direction, most=most, number=number, column=column)

    def _sorted_by(self, tree: exp.Expr, falling: bool) -> tuple[str, str, str]:
        """The name of what the rows are sorted by, the adjective of the first one, and the direction."""
        select = self.select
        most = "highest" if falling else "lowest"
        if type(tree) in AGGREGATES:
            return select.aggregate_name(tree), most, f"{most} first"
        key, name = select.key(tree), select.name(tree)
        if self.schema.is_date(key):
            most = "latest" if falling else "earliest"
        elif self.schema.types[key] == "text":
            return name, most, f"in {'reverse ' if falling else ''}alphabetical order"
        return name, most, f"{most} first"

    def _combined(self) -> Iterator[Utterance]:
        """What the second SELECT of an INTERSECT or EXCEPT adds: one condition."""
        if type(self.tree) not in _SETS:
            return
        other = _Wording(self.tree.expression, self.schema, self.chance)
        other.select = select = Select(self.tree.expression, self.schema, self.select.subject)
        require(not (select.group or select.having or select.order or select.limit))
        require([e.sql().lower() for e in select.columns] == [e.sql().lower() for e in self.select.columns])
        require(select.where and type(select.where.this) in (*_COMPARED, exp.Like))
        name, test = other._test(select.where.this)
        yield self._say(_SETS[type(self.tree)], condition=f"the {name} {test}")


def _fill(text: str, fields: dict[str, str]) -> str:
    """The text with its fields; after an abbreviation one full stop is enough."""
    return re.sub(r"\.\.$", ".", text.format(**fields))


def _like(pattern: str) -> str:
    """What a LIKE pattern asks for, as the end of "the name ..."."""
    inner = pattern.strip("%")
    require(inner and "%" not in inner and "_" not in inner)
    if pattern.startswith("%") and pattern.endswith("%"):
        return f"contains '{inner}'"
    if pattern != inner:
        return f"{'ends' if pattern.startswith('%') else 'starts'} with '{inner}'"
    return f"is '{inner}'"

"""Reads a reference query of Spider's kind: its tables, columns and values under their natural names."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

Key = tuple[str, str]  # table and column, in lower case
Forms = dict[type[exp.Expr], str]
AGGREGATES: Forms = {exp.Avg: "average", exp.Sum: "total", exp.Max: "highest", exp.Min: "lowest"}
CLAUSES = ("where", "group", "having", "order", "limit")
_NOUNS = tomllib.loads(Path(__file__).with_name("nouns.toml").read_text(encoding="utf-8"))
_SINGULAR = {several: one for one, several in _NOUNS["plurals"].items()}
_READ = {*CLAUSES, "kind", "expressions", "from_", "joins", "distinct", "operation_modifiers"}


class Unclear(SqlglotError):
    """A part of the query has no plain wording."""


def require(holds: Any) -> None:
    if not holds:
        raise Unclear


def _in_words(name: str) -> str:
    return name.replace("_", " ").strip().lower() or name


class Schema:
    """One database of Spider's tables.json: natural names, types and links of its tables and columns."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        tables = [name.lower() for name in row["table_names_original"]]
        columns = [(tables[t] if t >= 0 else "", c.lower()) for t, c in row["column_names_original"]]
        natural = {k: row.get(f"{k}_names") or row[f"{k}_names_original"] for k in ("table", "column")}
        column_names = [_in_words(name) for _, name in natural["column"]]
        self.tables = dict(zip(tables, map(_in_words, natural["table"]), strict=True))
        self.columns = dict(zip(columns, column_names, strict=True))
        self.types = dict(zip(columns, row["column_types"], strict=True))
        self.links = [(columns[a], columns[b]) for a, b in row["foreign_keys"]]
        keys = [k if isinstance(k, list) else [k] for k in row["primary_keys"]]
        self.keys = {columns[k[0]] for k in keys if len(k) == 1}

    def count_links(self, child: str, parent: str) -> int:
        return sum((a[0], b[0]) == (child, parent) for a, b in self.links)

    def is_date(self, key: Key) -> bool:
        name = self.columns[key]
        return self.types[key] == "time" or re.search(r"\b(?:date|year|time|day)\b", name) is not None


class Select:
    """One SELECT over tables that each stand once, joined along foreign keys; anything else is Unclear."""

    def __init__(self, tree: exp.Expr, schema: Schema, subject: str = "") -> None:
        require(isinstance(tree, exp.Select))
        require(not any(value for name, value in tree.args.items() if name not in _READ))
        self.tree, self.schema = tree, schema
        self.columns = [e.this if isinstance(e, exp.Alias) else e for e in tree.expressions]
        clauses: Any = [tree.args.get(clause) for clause in CLAUSES]
        self.where, self.group, self.having, self.order, self.limit = clauses
        self.joins = tree.args.get("joins") or []
        self.tables = self._read_tables()  # by alias
        self._check_joins()
        self.subject = subject or self._find_subject()
        self.mentioned = {self.subject}  # tables that a name has been asked of

    def _read_tables(self) -> dict[str, str]:
        require(self.tree.args.get("from_"))
        sources = [self.tree.args["from_"].this, *(join.this for join in self.joins)]
        require(all(isinstance(s, exp.Table) for s in sources))
        tables = {s.alias_or_name.lower(): s.name.lower() for s in sources}
        require(len(set(tables.values())) == len(sources))
        require(all(t in self.schema.tables and is_noun(self.schema.tables[t]) for t in tables.values()))
        return tables

    def _check_joins(self) -> None:
        conditions: list[exp.Expr] = []
        for join in self.joins:
            require(not join.side and not join.args.get("using"))
            on = join.args.get("on")
            conditions += list(on.flatten()) if isinstance(on, exp.And) else [on] if on else []
        require(len(conditions) >= len(self.joins))  # else some of it is a product
        for pair in conditions:
            require(isinstance(pair, exp.EQ))
            (one, _), (other, _) = self.key(pair.this), self.key(pair.expression)
            # With two links between them, which one is meant would have to be said.
            require(self.schema.count_links(one, other) + self.schema.count_links(other, one) <= 1)

    def require_bare(self) -> None:
        """One column of one table, and nothing that chooses or orders its rows."""
        require(len(self.columns) == 1 and not self.joins)
        require(not any(self.tree.args.get(clause) for clause in CLAUSES))

    def _find_subject(self) -> str:
        """The table that the question is about: that of its first column, else the counted one."""
        for item in self.columns:
            column = item.find(exp.Column)
            if column and (not isinstance(item, exp.Count) or isinstance(item.this, exp.Distinct)):
                return self.key(column)[0]
        return self.counted_table()

    def counted_table(self) -> str:
        """The table whose rows count(*) counts: the one that no other table of the query links to."""
        tables = set(self.tables.values())
        targets = {b[0] for a, b in self.schema.links if {a[0], b[0]} <= tables and a[0] != b[0]}
        require(len(tables - targets) == 1)
        return (tables - targets).pop()

    def key(self, column: exp.Expr) -> Key:
        require(isinstance(column, exp.Column))
        name, alias = column.name.lower(), column.text("table").lower()
        tables = {self.tables.get(alias)} if alias else self.tables.values()
        keys = [(table, name) for table in tables if table and (table, name) in self.schema.columns]
        require(len(keys) == 1)
        return keys[0]

    def value(self, tree: exp.Expr) -> str:
        """The text of a constant. Spider writes many strings in double quotes, like names of columns."""
        sign = "-" if isinstance(tree, exp.Neg) else ""
        tree = tree.this if sign else tree
        if isinstance(tree, exp.Column) and not tree.table and tree.this.args.get("quoted"):
            require(not any((t, tree.name.lower()) in self.schema.columns for t in self.tables.values()))
        else:
            require(isinstance(tree, exp.Literal))
        text = sign + tree.name.strip()
        require(text.lower() not in ("", "null"))
        return text

    # --- natural names
    def table_name(self, table: str) -> str:
        self.mentioned.add(table)
        return singular(self.schema.tables[table])

    def name(self, column: exp.Expr) -> str:
        """A column's natural name, with its table where that is not the subject."""
        table, _ = key = self.key(column)
        name = self.schema.columns[key]
        require(is_noun(name))
        if table == self.subject:
            return name
        owner = self.table_name(table)
        return name if set(owner.split()) & set(map(singular, name.split())) else f"{name} of the {owner}"

    def aggregate_name(self, item: exp.Expr) -> str:
        word = AGGREGATES[type(item)]
        if self.schema.is_date(self.key(item.this)):
            word = {"highest": "latest", "lowest": "earliest"}.get(word, word)
        name = self.name(item.this)
        return name if name.split()[0] == word else f"{word} {name}"

    def group_name(self) -> str:
        """What a group is: a row of the table whose key it is, else the column."""
        require(len(self.group.expressions) == 1)
        column = self.group.expressions[0]
        key, tables = self.key(column), set(self.tables.values())
        for link in self.schema.links:
            if key in link and link[1][0] in tables:
                return self.table_name(link[1][0])
        if key in self.schema.keys:
            return self.table_name(key[0])
        name = self.name(column)
        return f"{self.table_name(key[0])} {name}" if name in ("name", "id", "code") else name

    def counted_name(self) -> str:
        """What a group's rows are, in the plural."""
        name = self.table_name(self.counted_table())
        require(name != self.group_name())
        return plural(name)

    def unsaid_tables(self) -> list[str]:
        """Tables that nothing has named and that do more than join two others: they limit the rows."""
        if self.group and self.tree.find(exp.Count):
            return []  # counting the rows of a group says that there are some
        tables, unsaid = set(self.tables.values()), []
        for table in (t for t in self.tables.values() if t not in self.mentioned):
            parents = sum(self.schema.count_links(table, other) > 0 for other in tables - {table})
            require(parents)
            unsaid += [table] if parents == 1 else []
        return unsaid


# --- singular and plural, by rule
def is_noun(name: str) -> bool:
    """Whether a name can be said as it is: "price", but neither "directed by" nor "has pet"."""
    first, last = name.split()[0], name.split()[-1]
    participle = re.search(r"[^e]ed$", last) and last not in ("bed", "red")
    return not participle and first not in _NOUNS["verbs"] and last not in _NOUNS["no_noun"] + _NOUNS["verbs"]


def plural(name: str) -> str:
    """ "name of the singer" -> "names of the singer"."""
    before, last, after = _split_name(name)
    if last in _NOUNS["plurals"]:
        last = _NOUNS["plurals"][last]
    elif re.search(r"[^aeiou]y$", last):
        last = f"{last[:-1]}ies"
    elif re.search(r"(?:ss|us|is|x|z|ch|sh)$", last):
        last += "es"
    elif last not in _NOUNS["uncountable"] and last not in _SINGULAR and not last.endswith("s"):
        last += "s"
    return before + last + after


def singular(name: str) -> str:
    """ "names of the singer" -> "name of the singer"."""
    before, last, after = _split_name(name)
    if last in _SINGULAR:
        last = _SINGULAR[last]
    elif re.search(r"[^aeiou]ies$", last) and last not in _NOUNS["uncountable"]:
        last = f"{last[:-3]}y"
    elif re.search(r"(?:ss|us|x|ch|sh)es$", last):
        last = last[:-2]
    elif last.endswith("s") and not last.endswith(("ss", "us", "is")) and last not in _NOUNS["uncountable"]:
        last = last[:-1]
    return before + last + after


def _split_name(name: str) -> tuple[str, str, str]:
    """What stands before the noun, the noun, and what it is of or in."""
    noun, mark, rest = re.match(r"(.+?)( (?:of|in|for) |$)(.*)", name).groups()  # type: ignore[union-attr]
    before, space, last = noun.rpartition(" ")
    return before + space, last, mark + rest

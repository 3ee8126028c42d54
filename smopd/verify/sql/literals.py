"""Accept literals in the user's spelling: a reply cannot know how the database spells what the user names.

A text of the reply counts as one of the reference's if both are compared with the same column in the same
way, it occurs in the user's messages, and the reference's text differs only in case, spaces, punctuation or a
plural, occurs only inside it ("the Alton airport" for 'Alton'), or does not occur but looks alike ("united
states" for 'USA'). Numbers, schema names and values compared with another column are never replaced.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from smopd.verify.sql.facts import NEGATED, resolve_all
from smopd.verify.sql.reference import Suite, parse_query
from smopd.verify.sql.schema import Key, Schema

_OPERATORS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.In: "=", exp.NEQ: "!=", exp.Like: "like"}
_NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?")
_QUOTED = re.compile(r"""(?<!\w)['"`“‘]+\s*([^'"`“”‘’]+?)\s*['"`”’]+(?!\w)""")


@dataclass
class _Place:  # a text literal that a query compares with columns
    columns: set[Key]
    operator: str
    text: str
    node: exp.Expr
    case: Callable[[str], str]  # str.lower or str.upper if the comparison uses LOWER or UPPER


def respelled(suite: Suite, query: str, texts: Sequence[str]) -> str | None:
    """Replace the user's spellings in the query by the reference's literals; None if nothing changes."""
    tree, reference = parse_query(query), suite.reference.tree
    # If the reference's literals match no row, any others would pass.
    if tree is None or reference is None or all(expected.nothing for _, expected in suite.databases):
        return None
    mine, theirs = _places(tree, suite.schema), _places(reference, suite.schema)
    user_words = _Words(texts, suite.schema)
    changed = False
    for place in mine:
        same = [p for p in theirs if p.operator == place.operator and p.columns & place.columns]
        taken = {p.text for p in mine if p.operator == place.operator and p.columns & place.columns}
        if any(p.text == place.text for p in same):
            continue
        elsewhere = {_fold(p.text) for p in theirs if not p.columns & place.columns}
        free = dict.fromkeys(p.text for p in same if p.text not in taken)
        options = [text for text in free if user_words.says(place.text, text, elsewhere)]
        options = [text for text in options if _alike(place.text, text)] or options
        if len(options) == 1:
            place.node.replace(exp.Literal.string(place.case(options[0])))
            changed = True
    return tree.sql(dialect="sqlite") if changed else None


def _places(tree: exp.Expr, schema: Schema) -> list[_Place]:
    places = []
    for node in tree.find_all(*_OPERATORS):
        sides = [side for side in (node.this, node.expression, *node.args.get("expressions", ())) if side]
        columns, literals = set[Key](), list[exp.Expr]()
        for side in sides:
            keys = resolve_all(side, schema)
            columns |= keys if not side.find(exp.Query) else set()
            quoted = isinstance(side, exp.Column) and not keys and side.this.args.get("quoted")
            if quoted or (isinstance(side, exp.Literal) and side.is_string):
                literals.append(side)
        columns |= {schema[t].foreign[c] for t, c in columns if c in schema[t].foreign}
        operator = _OPERATORS[type(node)]
        if operator == "like" and not any("%" in literal.name or "_" in literal.name for literal in literals):
            operator = "="
        if isinstance(node.parent, exp.Not) or node.args.get("negate"):
            operator = NEGATED[operator]
        lower, upper = (any(isinstance(side, kind) for side in sides) for kind in (exp.Lower, exp.Upper))
        case = str.lower if lower else str.upper if upper else str
        places += [_Place(columns, operator, literal.name, literal, case) for literal in literals if columns]
    return places


class _Words:
    def __init__(self, texts: Sequence[str], schema: Schema) -> None:
        self._said = [f" {_fold(text)} " for text in texts]
        self._quoted = {_fold(quote[1]) for text in texts for quote in _QUOTED.finditer(text)}
        names = [*schema, *(column for table in schema.values() for column in table.columns)]
        self._names = {_singular(_fold(name.replace("_", " "))) for name in names}

    def says(self, text: str, meant: str, elsewhere: set[str]) -> bool:
        if (text[:1] == "%", text[-1:] == "%") != (meant[:1] == "%", meant[-1:] == "%"):
            return False
        literal, stored = _fold(text), _fold(meant)
        if not literal or not self._count(literal) or literal in elsewhere:
            return False
        if _alike(text, meant):
            return True
        if _NUMBER.fullmatch(text.strip()) or _singular(literal) in self._names:
            return False
        if self._count(stored):  # accepted only inside the reply's literal
            inside = f" {literal} ".count(f" {stored} ") * self._count(literal)
            return inside >= self._count(stored) and stored not in self._quoted
        # Or the two look related: usa and united states, f and female, asia and asian.
        short, long = sorted((literal.replace(" ", ""), stored.replace(" ", "")), key=len)
        letters = iter(long)
        abbreviates = short[:1] == long[:1] and all(letter in letters for letter in short)
        return abbreviates or (len(short) > 2 and short[:2] == long[:2])

    def _count(self, phrase: str) -> int:
        return sum(text.replace(" ", "  ").count(f" {phrase.replace(' ', '  ')} ") for text in self._said)


def _fold(text: str) -> str:
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())


def _singular(phrase: str) -> str:
    return phrase[:-1] if len(phrase) > 3 and phrase.endswith("s") else phrase


def _alike(text: str, meant: str) -> bool:
    """Whether two texts differ only in case, spaces, punctuation or a plural; numbers must be equal."""
    numbers = [t.strip().replace(",", "") for t in (text, meant) if _NUMBER.fullmatch(t.strip())]
    if numbers:
        return len(numbers) == 2 and float(numbers[0]) == float(numbers[1])
    return _singular(_fold(text).replace(" ", "")) == _singular(_fold(meant).replace(" ", ""))

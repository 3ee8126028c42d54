"""The values that the columns of a synthetic database draw from.

Columns that are compared with each other draw from one pool: constants of the query, values near them, and
others.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from smopd.verify.sql.facts import QueryFacts
from smopd.verify.sql.schema import Key, Schema

Value = str | int | float | None
T = TypeVar("T")
_WORDS = ["ash", "birch", "Cedar", "dogwood", "elm", "fir", "Ginkgo", "hazel", "iris", "kapok"]
_WORDS += ["larch", "Maple", "oak"]


@dataclass(frozen=True)
class Profile:
    rows: int  # per table that the query names; 0 leaves them all empty
    variety: int  # distinct values per column beside the planted ones
    planted: float  # how often a value is a constant of the query or a near miss
    nulls: float  # where they are meant to be seen
    fitting: float = 0.3  # the share of rows that satisfy all comparisons with constants
    childless: bool = False  # tables with foreign keys stay empty
    wide: bool = False  # many different rows and groups, for a LIMIT to cut


class Pools:
    def __init__(self, schema: Schema, facts: QueryFacts, profile: Profile, draw: random.Random) -> None:
        self.profile, self.draw, self.facts = profile, draw, facts
        keys = [(name, column) for name, table in schema.items() for column in table.columns]
        links = [[(n, c), target] for n, table in schema.items() for c, target in table.foreign.items()]
        self._group = _grouped(keys, [*links, *sorted(map(sorted, facts.links))])
        self._kinds: dict[Key, str] = {}
        ranks = ("text", "date", "real", "int")
        for name, table in schema.items():
            for column, kind in table.columns.items():
                group = self._group[name, column]
                kind = "real" if (name, column) in facts.numeric and kind in ("text", "date") else kind
                self._kinds[group] = max(kind, self._kinds.get(group, kind), key=ranks.index)
        self._planted, self._fits, self._filler = (dict[Key, list[Value]]() for _ in range(3))
        self._plant()
        # In half of the databases the rows that fit are first or last where the query sorts, and in half a
        # column whose duplicates the query drops has many.
        self._few = {key for key in sorted(facts.once) if draw.random() < 0.5 and not profile.wide}
        self._extreme = {key: largest for key, largest in sorted(facts.extremes) if draw.random() < 0.5}

    def _plant(self) -> None:
        asked: dict[Key, list[tuple[str, str]]] = {}
        for key, operator, constant in sorted(self.facts.constants):
            group = self._group[key]
            asked.setdefault(group, []).append((operator, constant))
        for group, constants in asked.items():
            patterns = {text: _matches(text, self.draw) for operator, text in constants if "like" in operator}
            near = [v for o, text in constants for v in patterns.get(text) or _near(text, self._kinds[group])]
            numbers = [v for v in near if isinstance(v, (int, float))]
            near += [(min(numbers) + max(numbers)) // 2] if len(constants) > 1 and numbers else []
            self._planted[group] = near

            def met(value: Value, operator: str, text: str, like: dict[str, list[Value]] = patterns) -> bool:
                if "like" in operator:
                    return (value in like[text][:4]) == (operator == "like")
                return _meets(value, operator, text)

            every = [v for v in near if all(met(v, *constant) for constant in constants)]
            some = [v for v in near if any(met(v, *constant) for constant in constants)]
            self._fits[group] = every or some or near

    def one(self, values: Sequence[T]) -> T:
        """One of some values; random.choice takes thrice the time."""
        return values[int(len(values) * self.draw.random())]

    def pick(self, key: Key, fitting: bool = False) -> Value:
        """A value for a column, as the query asks for it where it should fit."""
        group = self._group[key]
        planted = self._planted.get(group)
        if planted and fitting and self.draw.random() < 0.95:
            return self.one(self._fits[group])
        few = key in self._few and self.draw.random() < 0.6
        if planted and self.draw.random() < self.profile.planted:
            return self.one(planted)
        if group not in self._filler:
            # Ties in one column where another has few.
            size = min(self.profile.rows, int(self.profile.variety * self.one((0.5, 1, 1, 4))))
            self._filler[group] = [self._fill(group, i) for i in range(max(2, size))]
        if fitting and key in self._extreme:
            return self._beyond(group, self._extreme[key])
        return self._filler[group][0] if few else self.one(self._filler[group])

    def asked(self, key: Key) -> bool:
        return self._group[key] in self._fits

    def fits(self, key: Key, value: Value) -> bool:
        return value in self._fits.get(self._group[key], ())

    def distinct(self, key: Key, count: int) -> list[Value]:
        group = self._group[key]
        planted = list(dict.fromkeys([*self._planted.get(group, ()), *self._filler.get(group, ())]))
        self.draw.shuffle(planted)
        kind, start = self._kinds[group], self.draw.randint(1, 5)
        others: list[Value] = [f"{_WORDS[i % len(_WORDS)]}{i}" for i in range(2 * count)]
        if kind in ("int", "real"):
            others = [i + start for i in range(2 * count)]
        self.draw.shuffle(others)
        values = list(dict.fromkeys([*planted[: (count + 1) // 2], *others]))[:count]
        self.draw.shuffle(values)
        # For columns that are joined to it without a foreign key.
        self._filler.setdefault(group, []).extend(values)
        return values

    def _beyond(self, group: Key, largest: bool) -> Value:
        """A value past the others, or as far as the farthest."""
        values = [v for v in self._filler[group] if v is not None]
        step = self.one((0, 1, 2, 3))
        numbers = [v for v in values if isinstance(v, (int, float))]
        if numbers:
            return max(numbers) + step if largest else min(numbers) - step
        text = max(map(str, values)) if largest else min(map(str, values))
        if self._kinds[group] == "date":
            return f"{2021 + step if largest else 1959 - step}{text[4:]}"
        return f"{'z' if largest else 'A'}{step} {text}" if step else text

    def _fill(self, group: Key, index: int) -> Value:
        kind, draw, one = self._kinds[group], self.draw, self.one
        if kind in ("int", "real"):
            near = [v for v in self._planted.get(group, ()) if isinstance(v, (int, float))]
            number: int | float = draw.randint(1, 2 * self.profile.variety)
            if near:
                number = one(near) + one((-1, 1)) * one((2, 3, 10, 50))
            return number + one((0, 0.25, 0.5)) if kind == "real" else int(number)
        if kind == "date":
            return f"{draw.randint(1960, 2020)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        if self.profile.wide:
            return f"{one(_WORDS)}{index}"
        return one(_WORDS) if index else f"{one(_WORDS)} {one(_WORDS)}"


def _grouped(keys: Sequence[Key], links: Sequence[Sequence[Key]]) -> dict[Key, Key]:
    """For every column one that stands for all it is linked with, directly or not."""
    group = {key: key for key in keys}
    members = {key: [key] for key in keys}
    for link in links:
        known = [key for key in link if key in group]
        for key in known[1:]:
            into, old = group[known[0]], group[key]
            if into != old:
                group.update(dict.fromkeys(members[old], into))
                members[into] += members.pop(old)
    return group


def _meets(value: Value, operator: str, text: str) -> bool:
    constant: Value = text
    if isinstance(value, (int, float)):
        try:
            constant = float(text)
        except ValueError:
            return operator == "!="
    if operator in ("=", "!="):
        return (value == constant) == (operator == "=")
    below, same = value < constant, value == constant  # type: ignore[operator]
    return {"<": below, "<=": below or same, ">": not (below or same), ">=": not below}[operator]


def _near(text: str, kind: str) -> list[Value]:
    """A constant, and values that a slightly different comparison takes or leaves; never just its case."""
    try:
        number = float(text)
        exact: int | float = int(number) if number.is_integer() else number
    except (ValueError, OverflowError):
        near: list[Value] = [text, text, text, f"{text}s", f"w{text}", text[:-1]]
        if len(text) > 3 and text[-1].isdigit():  # a date: the days around it
            near += [text[:-1] + str((int(text[-1]) + step) % 10) for step in (1, 9)]
        return near
    if kind in ("int", "real"):
        return [exact, exact, exact - 1, exact + 1, *((exact + 0.5, exact - 0.5) if kind == "real" else ())]
    days: list[Value] = [f"{exact}-06-15", f"{exact}-12-31"] if 1000 <= exact < 3000 else []
    return [text, text, str(exact - 1), str(exact + 1), *days]


def _matches(pattern: str, draw: random.Random) -> list[Value]:
    """Four texts that match a LIKE (or GLOB) pattern, then texts that do or nearly do."""
    wild = {"%": ("", "oak ", " elm", "x"), "*": ("", "oak", "x"), "_": ("a", "Z"), "?": ("a", "Z")}
    texts = ["".join(draw.choice(wild.get(c, (c,))) for c in pattern) for _ in range(4)]
    core = re.sub(r"[%*]", "", pattern).replace("_", "a").replace("?", "a")
    around = [f"w{core}", f"{core}w", f"w {core} w"]
    return [*texts, core, core.swapcase(), core[:-1], core[1:], *around, core[: len(core) // 2]]

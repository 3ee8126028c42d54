"""Find what a word problem asks for (the nouns or unit of its question) and the numbers it states."""

import functools
import re
from dataclasses import dataclass, replace
from fractions import Fraction

from smopd.verify.math import numbers


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LONGEST = 4000  # characters at the end of a problem that are searched for its question
_TIME = words("second minute hour day week month year decade min hr")
_LENGTH = words("inch foot feet yard mile meter metre kilometer kilometre km cm centimeter mm block")
_WEIGHT = words("pound ounce gram kilogram kg ton lb lbs oz")
_SPEED = words("mph kmh") | _LENGTH
_MONEY = words("dollar cent penny euro buck")
_UNITS = _TIME | _LENGTH | _WEIGHT | _MONEY | words("percent percentage degree liter gallon")
_ASKS = re.compile(
    r"(?i)\bhow\s+(?P<how>many|much|old|long|far|fast|tall|high|wide|deep|heavy)\b"
    r"|\b(?:what|which|find|calculate|determine)\b"
)
_MONEY_WORDS = re.compile(
    r"(?i)\b(?:cost|price|profit|money|revenue|earnings?|income|salary|pay|paid|spend|spent|earn|dollars?|"
    r"bill|worth|change|budget|fee|tax|owe|save|savings|wages?|sell|sold|charge|raise[ds]?)\b"
)
_DIFFERENCE = re.compile(
    r"(?i)how (?:many|much) (?:[a-z]+ )?"
    r"(?:more|fewer|less|(?:old|young|long|short|tall|fast|high|heavi|great)er)\b"
    r"|what (?:is|was|will be) the difference\b"
)
_SEVERAL = re.compile(r"how many (?:more |total )?(?:[a-z]+ ){1,3}and (?:[a-z]+ ){1,3}", re.IGNORECASE)
_PERCENT = re.compile(r"^\W*(?:\w+\W+){0,3}percent|\bas a percent", re.IGNORECASE)
_RATE = re.compile(r"(?i)how fast|(?:what|how many|how much) (?:[a-z]+ ){0,4}\(?(?:speed|rate|[a-z]+s per)\b")
_PLACE = re.compile(r"(?:what|which) (?:place|position|rank|floor|grade|day|date)\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_END = words(  # they end the nouns after "how many"
    "do does did will would can could is are was were has have had should must may might in on at for from "
    "per if when after before left remain remains each every there he she it they we you i to by with and or "
    "that who together than within over during"
)
_EMPTY = words(  # skipped among those nouns
    "more fewer less total of the a an additional extra other his her their its different whole full"
)


@dataclass(frozen=True)
class Asked:
    """What is asked for: stems of nouns or units ("$" and "%" included), and the kind of number."""

    units: frozenset[str] = frozenset()
    stated: frozenset[Fraction] = frozenset()  # values of the numbers in the problem
    difference: bool = False  # how many more, how much older
    several: bool = False  # how many apples and oranges
    place: bool = False  # what place, which floor
    rate: bool = False  # how fast, how many miles per hour


def stem(word: str) -> str:
    word = word.lower()
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "xes", "sses", "oes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word


@functools.lru_cache(maxsize=4096)
def asked(question: str) -> Asked:
    """Return what a problem asks for and states; without a question, only what it states."""
    question = question[-_LONGEST:]
    values = [*numbers.find(question), *numbers.find_words(question)]
    stated = frozenset(number.value for number in values if number.value is not None)
    *_, last = [None, *_ASKS.finditer(question)]
    if last is None:
        return Asked(stated=stated)
    kinds = [bool(p.match(question, last.start())) for p in (_DIFFERENCE, _SEVERAL, _PLACE, _RATE)]
    wanted = Asked(_units(question, last), stated, *kinds)
    return replace(wanted, units=frozenset()) if wanted.several else wanted


def _units(question: str, asks: re.Match[str]) -> frozenset[str]:
    how = (asks["how"] or "").lower()
    clause = re.split(r"[?.!]\s|[?\n]", question[asks.end() :], maxsplit=1)[0]
    tokens = [word.lower() for word in _WORD.findall(clause)]
    if _PERCENT.search(clause):
        return frozenset(("%", "percent", "percentage"))
    named = re.search(r"\bin (?:total )?([a-z]+)\b", clause)
    if named and (unit := stem(named[1])) in _UNITS:
        return _MONEY | {"$"} if unit == "dollar" else frozenset((unit,))
    if how == "many":
        # How many of the animals are chickens?
        kind = tokens.index("are") + 1 if tokens[:1] == ["of"] and "are" in tokens[:6] else 0
        return _nouns(tokens[kind:])
    if how == "much":
        return _much(tokens, money="$" in question or _MONEY_WORDS.search(clause) is not None)
    if how:
        return {"old": _TIME, "long": _TIME | _LENGTH, "fast": _SPEED, "heavy": _WEIGHT}.get(how, _LENGTH)
    return _MONEY | {"$"} if _MONEY_WORDS.search(clause) else frozenset()


def _much(tokens: list[str], money: bool) -> frozenset[str]:
    nouns = _nouns(tokens)
    if len(nouns) > 1:
        stems = dict.fromkeys(stem(word) for word in tokens if stem(word) in nouns)
        nouns = frozenset([*stems][-1:])  # dog food: the food
    if "time" in nouns:
        return _TIME
    if "weight" in nouns or "weigh" in tokens:
        return _WEIGHT
    if nouns & _UNITS:
        return nouns & _UNITS
    return _MONEY | {"$"} if money and (not nouns or nouns & {"money", "cost", "profit", "change"}) else nouns


def _nouns(tokens: list[str]) -> frozenset[str]:
    """Return the stem of the counted plural: "brown" for "hash browns", "row" for "rows of 5 stars"."""
    nouns = list[str]()
    for word in tokens[:8]:
        if word in _END or word.endswith(("ed", "n't")) or (word == "of" and nouns):
            break
        if word not in _EMPTY:
            nouns.append(word)
    dozens = [word for word in nouns if word.startswith("dozen")]
    plurals = dozens or [word for word in nouns if stem(word) != word]
    stems = frozenset(stem(word) for word in plurals[:1] or nouns)
    return _MONEY | {"$"} if "dollar" in stems else stems

"""Choose which of a sentence's numbers answers a question.

Operands of a calculation are dropped first. Then each of these tests drops the numbers that fail it, unless
all do: no ordinal or multiplier, bold, after ", so" and in no if- or since-clause, with the unit or noun that
the question asks for, in no adjunct ("in 40 seconds"), not stated by the question, not in "to make 40". A
list, a range and a sum that is not worked out are no answer.
"""

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from smopd.verify.math import numbers
from smopd.verify.math.numbers import BOLD, Number
from smopd.verify.math.question import Asked, stem, words


@dataclass(frozen=True)
class Reading:
    """An answer: its value (None if unusable, such as a range), its text, and how it was found."""

    value: Fraction | None
    text: str
    how: str
    box: str = ""  # the content of the box, if that is the answer


_WORDS = re.compile(r"[\s$)\]}\x01]*+([A-Za-z][A-Za-z']*)")
_STOP = words("in for per of to and out from at on by with or is are was were each every a an the if when")
_STOP |= {"than"}
_ADJUNCT = re.compile(
    r"\b(?:in|within|after|per|every|each|out of|over|during|from|at|with|than|for|among|into)\s+"
    r"(?:(?:the|a|all|these|just|about|only|next|first|last|his|her|their|those|any|another|of)\s+){0,3}[$€£]?$"
)
_SO = re.compile(
    r"(?i)(?:[,;:]|\band)\s+(?:so|then|thus|therefore|hence|which means|meaning|that means|"
    r"we (?:see|get|find|have)|which (?:is|equals)(?! (?:half|an?|the|one|more|less|[0-9]++(?:%|/))))\b"
    r"|\bmeans? that\b|\bthat means\b"
)
TIMES = re.compile(r"\s+times\s+(?:as|more|the|that|what|a|[a-z]+er)\b", re.IGNORECASE)  # 3 times as many
_SUBORDINATE = re.compile(  # not "the cost after the discount is 28"
    r"(?i)\b(?:(?:if|since|because|when|given|assuming)\b|(?:after|before)\b(?!.*\b(?:is|was|are|be)\s+$))"
)
_PURPOSE = re.compile(r"\bto (?:[a-z]+ ){1,4}$")  # to reach a total of 40
_TOTAL = re.compile(r"\b(?:for|making|giving) a total of\s+$", re.IGNORECASE)
_COMPARED = re.compile(
    r"(?i)\s+(?:[a-z]+\s+){0,2}?(?:more|less|fewer|(?:old|young|long|short|tall|great|high|low|fast|heavi)er)"
    r"\s+(?:[a-z']+\s+){0,6}?than\b"
)
_OPERATOR = re.compile(r"(?:[+*×x÷·/\u2212-])\s*[(\[]*$")
_LABEL = re.compile(r"([A-Za-z]+)\W{0,3}\s*[=:]\W{0,6}$")
_UNUSABLE = re.compile(
    r"(?i)\b(?:(?:step|part|question|problem|note|equation|case|method|option)\s#?"
    r"|(?:not|rather than|instead of)\s\W?)$"
)
_BESIDE = re.compile(r"(?:,|\band|&)\s(?:[a-z]+\s)?$", re.IGNORECASE)  # 3 onions and another 4
_SAME = re.compile(r"approx|\babout\b|\broughly\b|≈|\bor\b|\bwhich\b|i\.e\.|\(", re.IGNORECASE)
_COMMA = re.compile(r"\s*(?:,|and|, and|&)\s*")
_RATE = re.compile(r"\s*(?:[a-z]+\s*)?(?:per\b|/|an?\b)|\s*(?:mph|kph)\b", re.IGNORECASE)
_RANGE = re.compile(r"\s*(?:-|–|—|or|to)\s*$")
_PARTS = re.compile(r"\s*([A-Za-z]+)(?:,|,?\s+and)?\s+\$?")
_PART = re.compile(r"\s*([A-Za-z]+)")
_PARTS_OF = {
    "hour minute": 60, "minute second": 60, "day hour": 24, "week day": 7, "year month": 12, "foot inch": 12,
    "feet inch": 12, "pound ounce": 16, "dollar cent": 100,
}  # fmt: skip


def usable(sentence: str) -> list[Number]:
    every = numbers.find(sentence)
    return [n for n in every if not _UNUSABLE.search(sentence, max(0, n.start - 14), n.start)]


def choose(sentence: str, candidates: Sequence[Number], wanted: Asked, first: bool, how: str) -> Reading:
    """Choose among the numbers of a sentence: the first or the last of those that pass the tests."""
    candidates = _join_units(sentence, candidates, wanted)
    operands, ranged = _find_operands_and_ranges(sentence, candidates)
    keep = [number for number in candidates if number not in operands]
    if not keep:
        value = candidates[0].value if len(candidates) == 1 else None
        return Reading(value, sentence[candidates[0].start : candidates[-1].end], how)
    if _is_list(sentence, keep) or (wanted.several and _several(sentence, keep, wanted, first)):
        return Reading(None, sentence[keep[0].start : keep[-1].end], how)
    for test in _tests(sentence, wanted):
        if sentence[: keep[-1].start].rstrip(" $").endswith("="):
            keep = keep[-1:]  # the result of the calculation that ends the sentence
        keep = [number for number in keep if test(number)] or keep
    number = keep[0 if first else -1]
    if number in ranged or _several(sentence, keep, wanted, first):
        return Reading(None, sentence[keep[0].start : keep[-1].end], how)
    return Reading(number.value, sentence[number.start : number.end], how)


def _is_list(sentence: str, candidates: Sequence[Number]) -> bool:
    between = (sentence[left.end : right.start] for left, right in pairwise(candidates))
    return len({number.value for number in candidates}) > 1 and all(_COMMA.fullmatch(gap) for gap in between)


def _several(sentence: str, keep: Sequence[Number], wanted: Asked, declared: bool) -> bool:
    """Whether more than one answer is left, as in "3 onions and 1 potato" if both are asked for."""
    if not (declared or wanted.several) or len({number.value for number in keep}) < 2:
        return False
    between = (sentence[left.end : right.start] for left, right in pairwise(keep))
    return all(_BESIDE.search(gap) and not _SAME.search(gap) for gap in between)


def _tests(sentence: str, wanted: Asked) -> list[Callable[[Number], object]]:
    """Return the tests that an answer should pass, the most important one first."""
    concluded = max((match.end() for match in _SO.finditer(sentence)), default=-1)
    return [
        lambda n: n.ordinal == wanted.place and not n.compound and not TIMES.match(sentence, n.end),
        lambda n: sentence.count(BOLD, 0, n.start) % 2 == 1,
        lambda n: (_COMPARED.match(sentence, n.end) is not None) == wanted.difference,
        lambda n: n.start > concluded,
        lambda n: not _SUBORDINATE.search(sentence, _clause(sentence, n.start), n.start),
        lambda n: _TOTAL.search(sentence, max(0, n.start - 24), n.start),
        lambda n: _matches(sentence, n, wanted.units) and (not wanted.rate or _RATE.match(sentence, n.end)),
        lambda n: _matches(sentence, n, wanted.units),
        lambda n: not _ADJUNCT.search(sentence[max(0, n.start - 30) : n.start].lower()),
        lambda n: n.value not in wanted.stated,
        lambda n: not _PURPOSE.search(sentence, _clause(sentence, n.start), n.start),
    ]


def _clause(sentence: str, at: int) -> int:
    return max(sentence.rfind(", ", 0, at), sentence.rfind(";", 0, at)) + 1


def _matches(sentence: str, number: Number, units: Set[str]) -> bool:
    label = _LABEL.search(sentence[max(0, number.start - 30) : number.start])
    if number.unit in units or (label and stem(label[1]) in units):
        return True
    word = _WORDS.match(sentence, number.end)
    for _ in range(4):
        if word is None or word[1].lower() in _STOP:
            return False
        if stem(word[1]) in units:
            return True
        word = _WORDS.match(sentence, word.end())
    return False


def _join_units(sentence: str, candidates: Sequence[Number], wanted: Asked) -> list[Number]:
    """Join "2 hours and 30 minutes" into one number, in the unit asked for, else the larger."""
    joined = list[Number]()
    for number in candidates:
        gap = _PARTS.fullmatch(sentence, joined[-1].end, number.start) if joined else None
        small = _PART.match(sentence, number.end)
        parts = _PARTS_OF.get(f"{stem(gap[1])} {stem(small[1])}") if gap and small else None
        if gap and small and parts and (large := joined[-1]).value is not None and number.value is not None:
            value = large.value + number.value / parts
            value *= parts if stem(small[1]) in wanted.units and stem(gap[1]) not in wanted.units else 1
            joined[-1] = replace(large, value=value, end=small.end())
        else:
            joined.append(number)
    return joined


def _find_operands_and_ranges(sentence: str, candidates: Sequence[Number]) -> tuple[set[Number], set[Number]]:
    operands, ranged = set[Number](), set[Number]()
    for left, right in pairwise(candidates):
        gap = sentence[left.end : right.start]
        if len(gap) > 80:
            continue
        equals = re.search(r"=|≈|\bequals\b", gap)
        if equals and not re.search(r"[,;]|\band\b|\bso\b|\bor\b", gap[: equals.start()]):
            operands.add(left)
        elif _RANGE.fullmatch(gap):
            ascending = left.value is not None and right.value is not None and left.value < right.value
            if re.search(r"\bfrom\s+[$€£]?$", sentence[: left.start]):
                operands.add(left)
            elif left.value == right.value or (left.unit != right.unit and right.unit):
                continue  # 3/5 or 0.6, 0.35 or 35%
            elif ascending or "or" in gap:
                ranged |= {left, right}
            elif gap.strip() != "to":
                operands |= {left, right}
        elif re.search(r"\bbetween\s+$", sentence[: left.start]) and gap.strip() == "and":
            ranged |= {left, right}
        elif _OPERATOR.search(gap) and not re.search(r"[,;:]", gap):
            operands |= {left, right}
    return operands, ranged

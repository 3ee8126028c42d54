r"""Numbers as people and models write them, each as an exact fraction with its place in the text.

Read are 1,234.50, 70 000, 1,00,000, 3/4, 1 1/2, 2½, \frac{3}{4}, 1.2e3, 1.2 × 10^3, 2^10, 2 million, 1.5k,
3:30 (as hours), negative ones, and words such as "one hundred and twenty". A dot is a decimal point: 70.000
is seventy. "3 dozen" is three. What a number stands for in its sentence is the reader's business.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

MOST_DIGITS = 400  # beyond that a number is nobody's answer, and int() refuses or takes its time


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text. `value` None: too long to be anybody's answer. `unit`: "$", "%", "time" or none."""

    value: Fraction | None
    start: int
    end: int
    unit: str = ""
    ordinal: bool = False  # 3rd
    compound: bool = False  # 5-pound


_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
}  # fmt: skip
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LETTER_SCALES = {"k": 10**3, "m": 10**6, "b": 10**9}
_SPACE = "[ \u00a0\u2009\u202f]"
# Repetitions are bounded, so that a number that fails to match costs no more than a few steps.
_WHOLE = (
    r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,8}(?![0-9])"
    r"|[0-9]{1,2}(?:,[0-9]{2}){1,4},[0-9]{3}(?![0-9])"
    rf"|(?<![0-9]{_SPACE})[0-9]{{1,3}}(?:{_SPACE}[0-9]{{3}}){{1,4}}(?![0-9]|{_SPACE}[0-9])"
    r"|[0-9]++)"
)
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]++)?|(?<![\w.])\.[0-9]++)"
_NUMBER = re.compile(
    # A minus is a sign unless something that can be subtracted from stands before it.
    r"(?P<sign>(?<![\w)\]}%])(?<![0-9)] )[-\u2212])?(?P<currency>[$€£¥]\s?)?(?:"
    r"(?P<hour>(?<![0-9:.,])[0-9]{1,2}):(?P<minute>[0-5][0-9])(?::[0-5][0-9])?(?![0-9:])"
    rf"|(?P<mixed>[0-9]{{1,9}})(?:\s{{1,3}}| and )(?P<mixed_top>[0-9]{{1,4}})/"
    rf"(?P<mixed_bottom>[0-9]{{1,4}})(?![0-9/])"
    rf"|(?:(?P<vulgar_whole>[0-9]{{1,9}})\s?)?(?P<vulgar>[{''.join(_VULGAR)}])"
    rf"|(?P<top>{_DECIMAL})(?:/(?P<bottom>{_DECIMAL}))?(?:[eE](?P<exponent>[-+]?[0-9]++))?"
    r"(?:\s?[×x*·]\s?10\s?\^\s?\{?(?P<ten>[-\u2212]?[0-9]{1,4})\}?|\^\{?(?P<power>[0-9]{1,3})\}?)?"
    r")"
    r"(?:(?P<ordinal>st|nd|rd|th)\b"
    r"|(?P<compound>-)(?=[A-Za-z]{2})"
    r"|\s?(?P<scale>hundred|thousand|million|billion|trillion)\b"
    r"|(?P<letter>[kK]|(?<=[0-9])[MB])(?![A-Za-z0-9/²³^]))?"
    r"(?:\s?(?P<percent>%|percent\b))?",
    re.IGNORECASE,
)


def find(text: str) -> list[Number]:
    """All numbers in digits, in order."""
    numbers, at = [], 0
    while match := _NUMBER.search(text, at):
        at = match.end()
        if match["mixed"] and int(match["mixed_top"]) >= int(match["mixed_bottom"]):
            at = match.end("mixed")  # "3 36/2": two numbers
            match = _NUMBER.fullmatch(text, match.start(), at) or match
        numbers.append(_number(match))
    return numbers


def _number(match: re.Match[str]) -> Number:
    unit = "$" if match["currency"] else "%" if match["percent"] else "time" if match["hour"] else ""
    end = match.end() - (match["letter"] is not None and not _letter_counts(match))
    value = _value(match)
    if value is not None and match["sign"]:
        value = -value
    compound = match["compound"] is not None
    return Number(value, match.start(), end - compound, unit, match["ordinal"] is not None, compound)


def _letter_counts(match: re.Match[str]) -> bool:
    """70k is a number; 5m are metres, unless of a currency."""
    return match["currency"] is not None or match["letter"] == "k" or match["letter"] == "K"


def _value(match: re.Match[str]) -> Fraction | None:
    if match["hour"]:
        return int(match["hour"]) + Fraction(int(match["minute"]), 60)
    if match["mixed"]:
        return _with_fraction(match["mixed"], int(match["mixed_top"]), int(match["mixed_bottom"]))
    if match["vulgar"]:
        value: Fraction | None = _with_fraction(match["vulgar_whole"], *_VULGAR[match["vulgar"]])
    else:
        value = _decimal(match)
    if value is None:
        return None
    if match["scale"]:
        value *= _SCALES[match["scale"].lower()]
    elif match["letter"] and _letter_counts(match):
        value *= _LETTER_SCALES[match["letter"].lower()]
    return value


def _with_fraction(whole: str, top: int, bottom: int) -> Fraction:
    return int(whole or 0) + (Fraction(top, bottom) if bottom else Fraction(0))


def _decimal(match: re.Match[str]) -> Fraction | None:
    parts = []
    for text in (match["top"], match["bottom"] or "1"):
        if len(text) > MOST_DIGITS:
            return None
        parts.append(Fraction(re.sub(r"[,\s]", "", text)))
    value = parts[0] / parts[1] if parts[1] else Fraction(0)  # "3/0" is no fraction: its last number is 0
    raised = (match["ten"] or match["exponent"] or "0").replace("\u2212", "-")
    power = int(match["power"] or 1)
    if len(raised) > 4 or abs(ten := int(raised)) > MOST_DIGITS or power * len(match["top"]) > MOST_DIGITS:
        return None
    return value**power * Fraction(10) ** ten


# --- in words
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_ONES = {word: value for value, word in enumerate(_SMALL.split())}
_DECADES = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = {word: 10 * value for value, word in enumerate(_DECADES.split(), 2)}
_WORD = "|".join(sorted([*_ONES, *_TENS, *_SCALES], key=len, reverse=True))
_WORDS = re.compile(
    rf"\b(?:an?\s+(?=(?:hundred|thousand|million)\b))?(?:{_WORD})(?:(?:\s+and\s+|[\s-]+)(?:{_WORD})){{0,12}}\b"
    r"(?P<half>\s+and\s+a\s+half\b)?(?P<more>[\s-]+(?:point|half|halves|(?:third|quarter|(?:[a-z]{1,7}th))s?)\b)?",
    re.IGNORECASE,
)


def find_words(text: str) -> list[Number]:
    """All numbers in words, in order: "twenty-five", "one hundred and twenty", "two and a half"."""
    numbers = []
    for match in _WORDS.finditer(text):
        if match["more"] or text[: match.start()].rstrip().endswith("point"):
            continue  # three tenths, nine point eight
        value = _value_of_words(re.findall(rf"\b(?:{_WORD})\b", match[0].lower()))
        if value is not None:
            half = Fraction(1, 2) if match["half"] else Fraction(0)
            numbers.append(Number(value + half, match.start(), match.end()))
    return numbers


def _value_of_words(words: list[str]) -> Fraction | None:
    """None where the words do not form one number ("two three")."""
    total, group, room = 0, 0, 1000  # room: what the next word must be smaller than
    for word in words:
        if word == "hundred":
            group, room = (group or 1) * 100, 100
        elif word in _SCALES:
            total, group, room = total + (group or 1) * _SCALES[word], 0, 1000
        else:
            size = _TENS.get(word, _ONES.get(word, 0))
            if size >= room:
                return None
            group, room = group + size, 10 if word in _TENS else 0
    return Fraction(total + group)

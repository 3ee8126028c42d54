r"""Find numbers as people and models write them, as exact fractions; strip LaTeX and markdown from a text.

These are read: 1,234.50, 70 000, 1,00,000, 3/4, 1 1/2, 2½, \frac{3}{4}, 1.2e3, 1.2 × 10^3, 2^10, 2 million,
1.5k, 3:30 (as hours), negative numbers, and words such as "one hundred and twenty". A dot is a decimal point:
70.000 is seventy. "3 dozen" is three; what a number means in its sentence is left to the reader.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from unicodedata import normalize

MOST_DIGITS = 400  # longer numbers are no answer, and int() refuses them or is slow


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text. `value` is None if it is too long; `unit` is "$", "%", "time" or empty."""

    value: Fraction | None
    start: int
    end: int
    unit: str = ""
    ordinal: bool = False  # 3rd
    compound: bool = False  # 5-pound


# Fractions of one character; Unicode decomposes "½" into 1⁄2.
_VULGAR = {c: Fraction(normalize("NFKD", c).replace("\u2044", "/")) for c in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LETTER_SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}
_SPACE = "[ \u00a0\u2009\u202f]"
_WHOLE = (  # repetitions are bounded, so that a failed match costs only a few steps
    r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,8}(?![0-9])"
    r"|[0-9]{1,2}(?:,[0-9]{2}){1,4},[0-9]{3}(?![0-9])"
    rf"|(?<![0-9]{_SPACE})[0-9]{{1,3}}(?:{_SPACE}[0-9]{{3}}){{1,4}}(?![0-9]|{_SPACE}[0-9])"
    r"|[0-9]++)"
)
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]++)?|(?<![\w.])\.[0-9]++)"
_NUMBER = re.compile(
    # A minus is a sign unless it could subtract from what stands before it.
    r"(?i)(?P<sign>(?<![\w)\]}%])(?<![0-9)] )[-\u2212])?(?P<currency>[$€£¥]\s?)?(?:"
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
    r"(?:\s?(?P<percent>%|percent\b))?"
)


def find(text: str) -> list[Number]:
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
    letter, compound = (match["letter"] or "").lower(), match["compound"] is not None
    counts = letter == "k" or match["currency"] is not None  # 70k; "5m" are metres unless it is money
    end = match.end() - (letter != "" and not counts) - compound
    value: Fraction | None
    if match["hour"]:
        value = int(match["hour"]) + Fraction(int(match["minute"]), 60)
    elif match["mixed"]:
        bottom = int(match["mixed_bottom"])
        value = int(match["mixed"]) + (Fraction(int(match["mixed_top"]), bottom) if bottom else Fraction(0))
    else:
        vulgar = match["vulgar"]
        value = int(match["vulgar_whole"] or 0) + _VULGAR[vulgar] if vulgar else _decimal(match)
        scale = _SCALES[match["scale"].lower()] if match["scale"] else _LETTER_SCALES[letter] if counts else 1
        value = None if value is None else value * scale
    value = -value if value is not None and match["sign"] else value
    return Number(value, match.start(), end, unit, match["ordinal"] is not None, compound)


def _decimal(match: re.Match[str]) -> Fraction | None:
    value = quotient(match["top"], match["bottom"])
    raised = (match["ten"] or match["exponent"] or "0").replace("\u2212", "-")
    power = int(match["power"] or 1)
    if len(raised) > 4 or abs(ten := int(raised)) > MOST_DIGITS or power * len(match["top"]) > MOST_DIGITS:
        return None
    return None if value is None else value**power * Fraction(10) ** ten


def quotient(top: str, bottom: str | None) -> Fraction | None:
    """Return the value of two decimals, each perhaps with an exponent; None if one is too long."""
    parts = []
    for text in (top, bottom or "1"):
        mantissa, _, exponent = text.lower().partition("e")
        if len(mantissa) > MOST_DIGITS or len(exponent) > 4 or abs(int(exponent or 0)) > MOST_DIGITS:
            return None
        parts.append(Fraction(re.sub(r"[,\s]", "", text)))
    return parts[0] / parts[1] if parts[1] else Fraction(0)  # "3/0" is no fraction: its last number is 0


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
    rf"(?i)\b(?:an?\s+(?=(?:hundred|thousand|million)\b))?(?:{_WORD})"
    rf"(?:(?:\s+and\s+|[\s-]+)(?:{_WORD})){{0,12}}\b(?P<half>\s+and\s+a\s+half\b)?"
    r"(?P<more>[\s-]+(?:point|half|halves|(?:third|quarter|(?:[a-z]{1,7}th))s?)\b)?"
)


def find_words(text: str) -> list[Number]:
    """Find all numbers in words, in order: "twenty-five", "one hundred and twenty", "two and a half"."""
    numbers = []
    for match in _WORDS.finditer(text):
        if match["more"] or text[: match.start()].rstrip().endswith("point"):
            continue  # three tenths, nine point eight
        if (value := _value_of_words(re.findall(rf"\b(?:{_WORD})\b", match[0].lower()))) is not None:
            numbers.append(Number(value + Fraction(bool(match["half"]), 2), match.start(), match.end()))
    return numbers


def _value_of_words(number_words: list[str]) -> int | None:
    """Return None if the words do not form one number ("two three")."""
    total, group, room = 0, 0, 1000  # room: the next word must be smaller
    for word in number_words:
        if word == "hundred":
            group, room = (group or 1) * 100, 100
        elif word in _SCALES:
            total, group, room = total + (group or 1) * _SCALES[word], 0, 1000
        else:
            size = _TENS.get(word, _ONES.get(word, 0))
            if size >= room:
                return None
            group, room = group + size, 10 if word in _TENS else 0
    return total + group


# --- markup
BOLD = "\x01"  # marks where bold begins and ends

_REPLACED = (
    ("{,}", ","), ("\\!", ""), ("\\$", "$"), ("\\%", "%"), ("\\times", "×"), ("\\cdot", "·"), ("\\div", "÷"),
    ("\\approx", "≈"), ("\\left", ""), ("\\right", ""), ("\\(", " "), ("\\)", " "), ("\\[", " "),
    ("\\]", " "), ("\\ ", " "), ("\\;", " "), ("~", " "), ("\\quad", " "),
)  # fmt: skip
_NOTE = re.compile(r"<<[^<>\n]*+>>")
_TEXT = re.compile(r"\\(?:text(?:bf|rm|it)?|mathrm|mathbf|mbox|boxed|fbox|operatorname)\s*+\{([^{}]*+)\}")
_AFTER_DIGIT = re.compile(r"(?<=[0-9])(?=\\[dt]?frac)")  # 2\frac{1}{2} is 2 1/2
_FRAC = re.compile(r"\\[dt]?frac\s*+\{\s*+(-?[0-9.,]++)\s*+\}\s*+\{\s*+([0-9.,]++)\s*+\}")
_POWER = re.compile(r"(?<=[A-Za-z)]) ?\^(?:[0-9]++|\{[0-9]++\})")
THIN_SPACE = re.compile(r"(?<=[0-9])\\,(?=[0-9]{3})")


def plain(text: str) -> str:
    """Remove LaTeX, calculator notes and markdown from a sentence; `BOLD` stays as a mark."""
    text = _NOTE.sub("", text).replace("**", BOLD)
    if "\\" in text or "{" in text:
        text = THIN_SPACE.sub("", text)
        for latex, written in _REPLACED:
            text = text.replace(latex, written)
        text = _TEXT.sub(r" \1 ", _TEXT.sub(r" \1 ", text)).replace("\\,", " ")
        text = _FRAC.sub(r"\1/\2", _AFTER_DIGIT.sub(" ", text))
    return _POWER.sub("", text)


_BRACE = re.compile(r"\\[{}]|(?P<open>(?:\\f?box(?:ed)?\s*+)?\{)|(?P<close>\})")


def boxes(text: str, brace: re.Pattern[str] = _BRACE) -> Iterator[tuple[int, int]]:
    r"""Yield the start and end of the content of each \boxed{} or \fbox{}, in closing order."""
    open_braces = list[re.Match[str]]()
    for token in brace.finditer(text):
        if token["open"]:
            open_braces.append(token)
        elif token["close"] and open_braces and (opened := open_braces.pop())["open"] != "{":
            yield opened.end(), token.start()

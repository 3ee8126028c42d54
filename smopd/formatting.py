"""How numbers and text of unknown origin are shown, the same on pages, in figures and in the terminal."""

import html
import json
import math
import re
from numbers import Real
from typing import Any

# What a terminal or a page would obey or not show: control characters (with them all escape sequences), lone
# surrogates, marks that reorder text, characters without a width, and other ends of lines than \n.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)

LONGEST = 20_000  # characters of a text that are shown
# For a browser: it breaks no line at a no-break space.
_LONG_WORD = re.compile(r"[^ \t\n]{80}(?=[^ \t\n])")


def visible(text: str) -> str:
    """Text in which everything can be seen: line ends are newlines, a hidden character shows as U+FFFD."""
    return _HIDDEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: object, limit: int = 500) -> str:
    """What somebody else said, as a part of a message of ours: visible, in one line, and cut."""
    plain = " ".join(visible(str(text)[: 4 * limit]).split())
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def visible_json(value: Any) -> str:
    """JSON in one line, what `visible` would replace as an escape: the value stays the same."""
    written = json.dumps(value, ensure_ascii=False)
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], written)


def cut(text: str, limit: int = LONGEST) -> str:
    """Text of at most `limit` characters; a longer one says so, and stands whole in the files it is from."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters, cut)"


def html_text(text: object, limit: int = LONGEST) -> str:
    """Any text as the content of a page, cut, with places to break in its long words: without them a browser
    takes time in the square of a word's length.
    """
    marked = _LONG_WORD.sub("\\g<0>\0", cut(visible(str(text)), limit))  # no \0 is left in visible text
    return html.escape(marked, quote=True).replace("\0", "<wbr>")


def esc(text: object) -> str:
    """Text made safe for HTML and SVG, in content and in quoted attributes."""
    return html.escape(visible(str(text)), quote=True)


def finite(value: Any) -> float | None:
    """The value as a float, or None for what cannot be drawn: None, NaN, infinities, text."""
    try:
        number = float(value) if isinstance(value, Real) else math.nan  # Real: numpy's numbers too
    except OverflowError:
        return None
    # Absurd magnitudes would overflow the arithmetic of the axes.
    return number if abs(number) < 1e150 else None


def _tenths(fraction: float) -> float:
    """In percent to one decimal, halves away from zero: 245 of 400 is 61.3%, as a reader would round it."""
    return math.copysign(math.floor(abs(fraction) * 1000 + 0.5 + 1e-9) / 10, fraction) + 0.0


def percent(value: float | None) -> str:
    """0.6125 -> "61.3%"; "n/a" for what is not a finite number."""
    number = finite(value)
    return "n/a" if number is None else f"{_tenths(number):.1f}%"


def points(value: float, sign: bool = True) -> str:
    """0.203 -> "+20.3": a difference of fractions in percentage points."""
    number = finite(value)
    if number is None:
        return "n/a"
    rounded = _tenths(number)
    return f"{rounded:+.1f}" if sign and rounded else f"{rounded:.1f}"


def p_value(p: float) -> str:
    """ "< 0.001", "0.034", "0.45"."""
    number = finite(p)
    if number is None:
        return "n/a"
    return "< 0.001" if number < 0.001 else f"{number:.3f}" if number < 0.1 else f"{number:.2f}"


def interval(low: float, high: float) -> str:
    """A 95% interval of a fraction, in percent: "[56.4, 66.0]"."""
    known = finite(low) is not None and finite(high) is not None
    return f"[{percent(low)[:-1]}, {percent(high)[:-1]}]" if known else "n/a"

"""Format numbers and untrusted text alike on pages, in figures and in the terminal."""

import html
import json
import math
import re
from numbers import Real
from typing import Any

# Characters that a terminal or page would act on or not show: control characters (and so escape sequences),
# lone surrogates, bidirectional marks, zero-width characters, and line ends other than \n.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)

LONGEST = 20_000  # characters shown of a text, at most
# A no-break space is part of a word: browsers do not break lines there.
_LONG_WORD = re.compile(r"[^ \t\n]{80}(?=[^ \t\n])")


def visible(text: str) -> str:
    """Replace hidden characters by U+FFFD and all line ends by newlines."""
    return _HIDDEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: object, limit: int = 500) -> str:
    """Untrusted text inside a message: visible, on one line, and cut."""
    plain = " ".join(visible(str(text)[: 4 * limit]).split())
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def visible_json(value: Any) -> str:
    """JSON on one line, with hidden characters escaped so that the value stays the same."""
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], json.dumps(value, ensure_ascii=False))


def cut(text: str, limit: int = LONGEST) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters, cut)"


def html_text(text: object, limit: int = LONGEST) -> str:
    """Escape and cut text for a page; break points in long words keep browser layout from being quadratic."""
    marked = _LONG_WORD.sub("\\g<0>\0", cut(visible(str(text)), limit))  # no \0 is left in visible text
    return html.escape(marked, quote=True).replace("\0", "<wbr>")


def esc(text: object) -> str:
    return html.escape(visible(str(text)), quote=True)


def finite(value: Any) -> float | None:
    """The value as a float; None if it cannot be drawn (None, NaN, infinity, text)."""
    try:
        number = float(value) if isinstance(value, Real) else math.nan  # Real: numpy's numbers too
    except OverflowError:
        return None
    # Huge magnitudes would overflow the axes' arithmetic.
    return number if abs(number) < 1e150 else None


def _tenths(fraction: float) -> float:
    """In percent to one decimal, halves away from zero: 245 of 400 is 61.3%."""
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
    """A p value as "< 0.001", "0.034" or "0.45"."""
    number = finite(p)
    if number is None:
        return "n/a"
    return "< 0.001" if number < 0.001 else f"{number:.3f}" if number < 0.1 else f"{number:.2f}"


def interval(low: float, high: float) -> str:
    """A 95% interval of a fraction, in percent: "[56.4, 66.0]"."""
    known = finite(low) is not None and finite(high) is not None
    return f"[{percent(low)[:-1]}, {percent(high)[:-1]}]" if known else "n/a"

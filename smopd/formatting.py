"""How numbers and text of unknown origin are shown, the same on pages, in figures and in the terminal."""

import html
import math
import re
from numbers import Real
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def visible(text: str) -> str:
    """Text with line ends as newlines and every other control character or lone surrogate as U+FFFD."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


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
    """0.6125 -> "61.3%"."""
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

r"""A reply's sentence without LaTeX and markdown, and the boxes of a reply: \boxed{18}, \fbox{18}."""

import re
from collections.abc import Iterator

BOLD = "\x01"  # stands where bold begins and ends

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
_THIN_SPACE = re.compile(r"(?<=[0-9])\\,(?=[0-9]{3})")


def plain(text: str) -> str:
    """A sentence without LaTeX, calculator notes and markdown; bold begins and ends with a mark."""
    text = _NOTE.sub("", text).replace("**", BOLD)
    if "\\" in text or "{" in text:
        text = _THIN_SPACE.sub("", text)
        for latex, written in _REPLACED:
            text = text.replace(latex, written)
        text = _TEXT.sub(r" \1 ", _TEXT.sub(r" \1 ", text)).replace("\\,", " ")
        text = _FRAC.sub(r"\1/\2", _AFTER_DIGIT.sub(" ", text))
    return _POWER.sub("", text)


_BRACE = re.compile(r"\\[{}]|(?P<open>(?:\\f?box(?:ed)?\s*+)?\{)|(?P<close>\})")


def boxes(text: str) -> Iterator[tuple[int, int]]:
    """Where the content of each box begins and ends, in the order in which they close."""
    open_braces = list[re.Match[str]]()
    for token in _BRACE.finditer(text):
        if token["open"]:
            open_braces.append(token)
        elif token["close"] and open_braces and (opened := open_braces.pop())["open"] != "{":
            yield opened.end(), token.start()

"""Singular and plural of the natural names that data sets give tables and columns, by rule."""

import re
import tomllib
from pathlib import Path

WORDS = tomllib.loads(Path(__file__).with_name("nouns.toml").read_text(encoding="utf-8"))
_SINGULAR = {several: one for one, several in WORDS["plurals"].items()}


def is_noun(name: str) -> bool:
    """Whether a name can be said as it is: "price", but neither "directed by" nor "has pet"."""
    first, last = name.split()[0], name.split()[-1]
    participle = re.search(r"[^e]ed$", last) and last not in ("bed", "red")
    return not participle and first not in WORDS["verbs"] and last not in WORDS["no_noun"] + WORDS["verbs"]


def plural(name: str) -> str:
    """ "name of the singer" -> "names of the singer"."""
    before, last, after = _split(name)
    if last in WORDS["plurals"]:
        last = WORDS["plurals"][last]
    elif re.search(r"[^aeiou]y$", last):
        last = f"{last[:-1]}ies"
    elif re.search(r"(?:ss|us|is|x|z|ch|sh)$", last):
        last += "es"
    elif last not in WORDS["uncountable"] and last not in _SINGULAR and not last.endswith("s"):
        last += "s"
    return before + last + after


def singular(name: str) -> str:
    """ "names of the singer" -> "name of the singer"."""
    before, last, after = _split(name)
    if last in _SINGULAR:
        last = _SINGULAR[last]
    elif re.search(r"[^aeiou]ies$", last) and last not in WORDS["uncountable"]:
        last = f"{last[:-3]}y"
    elif re.search(r"(?:ss|us|x|ch|sh)es$", last):
        last = last[:-2]
    elif last.endswith("s") and not last.endswith(("ss", "us", "is")) and last not in WORDS["uncountable"]:
        last = last[:-1]
    return before + last + after


def _split(name: str) -> tuple[str, str, str]:
    """What stands before the noun, the noun, and what it is of or in."""
    noun, mark, rest = re.match(r"(.+?)( (?:of|in|for) |$)(.*)", name).groups()  # type: ignore[union-attr]
    before, space, last = noun.rpartition(" ")
    return before + space, last, mark + rest

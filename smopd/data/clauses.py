"""Where a text may be cut: the ends of its sentences, and the places in one where a clause begins.

Never inside quotes, brackets or code. The rules are lists of words and patterns (words.toml), made by reading
results on GSM8K, Spider, BFCL and MBPP: no grammar is parsed, so some cuts read oddly.
"""

import re
import tomllib
from bisect import bisect_left
from functools import cache
from itertools import pairwise
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_PATTERNS: dict[str, list[str]] = _LISTS.pop("patterns")
WORDS = {name: dict.fromkeys(text.split()) for name, text in _LISTS.items()}  # in order, and quick to look up


@cache
def pattern(name: str) -> re.Pattern[str]:
    return re.compile(_one_of(name), re.IGNORECASE)


def _one_of(name: str) -> str:
    """The alternatives of a list, with those of the lists that it names in <>."""
    alternatives = "|".join(_PATTERNS.get(name) or WORDS[name])
    return re.sub(r"<(\w+)>", lambda inner: f"(?:{_one_of(inner[1])})", alternatives)


# --- what stays whole
_QUOTED_OR_BRACKET = re.compile(
    # Of bounded length: a quote that nobody closes would be looked for to the end of the text, each anew.
    r"(?P<quoted>```.*?```|`[^`]+`|(?<![\w\"])\"[^\"]+\"(?![\w\"])|“[^”]{0,500}”|‘[^’]{0,500}’(?!\w)"
    r"|(?<![\w'])'(?=\S)(?:[^']|'(?=\w)){0,500}'(?!\w)|https?://\S+)|[()\[\]{}]"
)
_CLOSERS = {")": "(", "]": "[", "}": "{"}


def whole_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of every quotation, bracket, code and address, none inside another."""
    opened, spans, outer = list[re.Match[str]](), list[tuple[int, int]](), list[tuple[int, int]]()
    for m in _QUOTED_OR_BRACKET.finditer(text):
        if m["quoted"]:
            spans.append(m.span())
        elif m[0] not in _CLOSERS:
            opened.append(m)
        elif opened and opened[-1][0] == _CLOSERS[m[0]]:
            spans.append((opened.pop().start(), m.end()))
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not outer or span[0] >= outer[-1][1]:
            outer.append(span)
    return outer


# --- sentences
_END = re.compile(
    r"(?<![.?!…])(?P<mark>[.?!…]+)(?P<close>[\"'”’)\]}]*)(?P<gap>\s+|(?<=[a-z][.?!])(?=[A-Z][a-z]*\s))"
)


def sentences(text: str) -> list[str]:
    """The sentences of a text in one line; joined by single spaces they are the same text."""
    spans, cuts = whole_spans(text), [0]
    for end in _END.finditer(text):
        # Of the spans, which are in order, the last that begins before the mark's end.
        before = bisect_left(spans, end.end(), key=lambda span: span[0])
        inside = before > 0 and end.start("gap") < spans[before - 1][1]
        after = text[end.end() : end.end() + 200]  # as much as is looked at
        if not inside and _ends(text[cuts[-1] : end.start("mark")], end, after):
            cuts.append(end.end())
    return [piece for a, b in pairwise([*cuts, len(text)]) if (piece := text[a:b].strip())]


def _ends(before: str, end: re.Match[str], after: str) -> bool:
    if not after or not before.strip():
        return False
    following = re.match(r"[^\w$]*(\w[\w']*)", after)
    next_word = following[0].lower().strip("\"'“‘([") if following else ""
    if not end["gap"]:  # no space after the mark: a sentence only where the next word says so
        return next_word in WORDS["starters"]
    lower = re.match(r"[\"'“‘(\[]*[a-z]", after) is not None
    if "?" in end["mark"] or "!" in end["mark"]:
        return not (lower and end["close"])  # "Why?" he asked
    last = re.sub(r"^\W+", "", before.rsplit(None, 1)[-1])
    if lower or (re.fullmatch(r"\d+", last) and len(before.split(None, 1)) == 1):
        return False  # "1. clone" is an enumeration
    word = last.lower()
    if word in WORDS["ambiguous"] or re.fullmatch(r"(?:[A-Za-z]\.)*[A-Z]", last):
        return next_word in WORDS["starters"] and not (word == "no" and next_word.isdigit())
    return word not in WORDS["abbreviations"]


def asks(text: str) -> bool:
    """Does it begin like a question or a request, or hold a question?"""
    asked = text.rstrip("\"'”) ").endswith("?")
    return asked or bool(pattern("asking").match(text) or pattern("inner_ask").search(text))


def clauses(sentence: str, connectives_only: bool = False) -> list[str]:
    """The pieces of one sentence, in order and with their commas; itself where no place to cut is found."""
    leading = _first_cut(sentence)
    cuts = {*leading, *_cuts("connective", sentence)}
    if not connectives_only:
        # In "For each year, return the name and the number" a turn "and the number" would follow "For each".
        for cut in _cuts("other", sentence):
            if not leading or cut < leading[0] or pattern("ordered").match(sentence[cut:]):
                cuts.add(cut)
        cuts = cuts or set(_cuts("placed", sentence))
    kept = [0]
    for cut in sorted(cuts):
        if _is_long_enough(sentence[kept[-1] : cut]) and _is_long_enough(sentence[cut:]):
            kept.append(cut)
    return [piece for a, b in pairwise([*kept, len(sentence)]) if (piece := sentence[a:b].strip())]


def _is_long_enough(piece: str) -> bool:
    tokens = re.findall(r"[\w$][\w'.,-]*", piece)
    leads = tokens and tokens[0].lower() in ("and", "after", "for", "if", "that", "which")
    return len(tokens) >= (3 if leads else 2)


def _first_cut(sentence: str) -> list[int]:
    """Where the question begins after a condition: "If there are 3, how many ...?"."""
    spans, leading = whole_spans(sentence), pattern("leading").match(sentence)
    cuts = [leading.end()] if leading else []
    for later in pattern("later_ask").finditer(sentence):
        # In "how long, in years, will it take" the question has begun before.
        if not pattern("asked").search(sentence[max([0, *cuts]) : later.start()]):
            cuts.append(later.end())
    return [cut for cut in cuts if not any(a < cut < b for a, b in spans)]


def _cuts(marker: str, sentence: str) -> list[int]:
    spans, cuts = whole_spans(sentence), []
    for m in pattern(marker).finditer(sentence):
        before = re.findall(r"[\w'$.%-]+|[\"”)\]]", sentence[: m.start()])
        after = [w.lower() for w in re.findall(r"[\w'$-]+", sentence[m.end() :])[:3]]
        inside = any(a < m.end() and m.start() < b for a, b in spans)
        if not inside and len(after) > 1 and _fits(before, after, sentence[: m.start()], sentence[m.end() :]):
            cuts.append(m.end())
    return cuts


def _fits(before: list[str], after: list[str], left: str, right: str) -> bool:
    """May a clause begin here? `before`: the words to the left, `after`: the next three, in lower case."""
    if not before or before[-1].lower() in WORDS["hanging"]:
        return False
    last, word = before[-1].lower().strip(".,"), after[0]
    if pattern("paired").search(left) and not pattern("ordered").match(right):
        return False  # "both a club that swims and one that runs" falls apart
    two_names = before[-1][0].isupper() and right[4:5].isupper()
    if word == "and" and (two_names or pattern("one_of_two").match(right)):
        return False  # "Ana, Tom and Eva have", "my friend and I are"
    if pattern("object").search(left) or (word.endswith("ing") and last.endswith("ed")):
        return False  # "the songs that the man | with a hat sang", "started | working in"
    if word in WORDS["prepositions"] and pattern("verb_last").search(right):
        return False  # "does the document with id 2 have"
    if word in ("if", "when", "where"):
        return last not in WORDS["before_if"] and last != "or"
    if word == "with":
        joining = pattern("joining_verb").search(left) or pattern("no_with").fullmatch(last)
        return after[1] != "each" and not joining
    if word in WORDS["prepositions"]:
        return pattern("no_place").fullmatch(last) is None
    if word in ("that", "which"):
        return after[1] not in WORDS["subjects"]
    return not (word == "then" and last in WORDS["than"])

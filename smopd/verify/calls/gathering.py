"""Find the function calls that a reply makes, in the forms in which models write them.

Lists of calls, one list for each call, bare calls (numbered, assigned, quoted, joined by `;` or `+`), JSON
objects, and tags (<function=f>, <invoke name="f">) are found in one pass and then gathered:

- A call in a sentence or a comment is a mention, not a call, if the function is also called in a list, an
  object or a tag; so is f() or f(a, b) in a sentence. Definitions and schemas are never calls.
- Pieces with no words between them form a run. Runs are added up, but one that repeats gathered calls adds
  nothing, one that repeats all of them and has more replaces them, and words of correction ("no,", "wait,",
  "final answer:") drop what was gathered before.
- A call that cannot be read, a list that is cut short, or a call of an unknown function within a run makes
  the reply wrong. Only brackets missing after the last call are forgiven.

No text raises. Time is bounded: only the last `MOST_TEXT` characters count, and `_MOST_READINGS` of work.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from smopd.verify.calls import syntax
from smopd.verify.calls.syntax import MOST_CHARACTERS, Call

MOST_TEXT = 60_000  # characters of a reply, from its end
_MOST_READINGS = 400_000  # characters read, more than once if brackets are tangled
_OVERHEAD = 200  # cost of parsing one piece, in characters read
_MOST_NESTING = 20  # brackets within brackets
_LOOK_BACK = 200  # characters of a line before a call

_NAME = r"(?<![\w.])[^\W\d][\w.]*+"
_TAG = r'<(?:function|invoke|tool)(?:=|\s++name=)["\']?(?P<tag>[^\W\d][\w.]*+)["\']?\s*+>'
_OPENER = re.compile(
    rf"\[(?=\s*+(?:{_NAME}\s*+\(|[\[{{\"'(]))|{{(?=\s*+[\"'])|(?P<name>(?<!def )(?<!class ){_NAME})\(|{_TAG}"
)
_TAG_END = re.compile(r"</(?:function|invoke|tool)>")
_PARAMETER = re.compile(
    r'<parameter(?:=|\s++name=)["\']?(\w++)["\']?\s*+>([^<]*+(?:<(?!/?parameter\b)[^<]*+)*+)</parameter>'
)
# A name, perhaps a label, and an object: f\n{"a": 1}, Action: f\nAction Input: {"a": 1}
_LABEL = re.compile(rf"({_NAME})[\"'`*]*+\s*+:?\s*+(?:[A-Za-z ]{{1,20}}:\s*+)?(?:```\w*+\s*+)?$")
# Strings and comments first: brackets in them don't count. `cut` is a string that does not end on its line.
_STRING = r"""(?:"(?:[^"\\\n]|\\[^\n])*+"|'(?:[^'\\\n]|\\[^\n])*+'|(?P<cut>["'][^\n]*+))"""
_TOKEN = re.compile(_STRING + r"|#[^\n]*+|[\[\](){}]")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_NAMED = re.compile(r"\s*+[^\W\d]\w*+\s*+=(?!=)")  # right after the bracket of a call
# Functions that leave the calls within unchanged.
_WRAPPERS = frozenset(("print", "str", "repr", "list", "tuple", "len", "json.dumps"))

_ASSIGNED = r"(?:\w[\w.]*+\s*+(?::\s*+\w++\s*+)?=(?!=)|\bprint\()"
_USED = r"(?:\.\w++(?:\([^()\n]*+\))?|\[[^\[\]\n]*+\])*+"  # a call's value: f(a=1).get("b")[0]
_JOINS = r"\b(?:and|also|then|or|plus|next|first|second|third|finally|call)\b"  # words that only join
_NO_WORDS = re.compile(
    rf"(?i){_USED}(?:\s|{_JOINS}|```\w*+|</?[\w|=\"' ]{{1,40}}>|{_ASSIGNED}|\b[a-z\d]{{1,2}}[.)]|[^\w\s#=])*+"
)
_CORRECTS = re.compile(
    r"(?i)(?:^|[\W\d])(?:no|wait|sorry|actually|correction|oops)\s*+[,:;!]"
    r"|\bfinal(?:\s++(?:answer|list|output|response|version|(?:function\s++)?calls))?(?:\s++is)?[\s*_]*+:"
)
_CUT_SHORT = re.compile(r"\s*+,\s*+[\w.'\"]*+\s*+")


@dataclass(frozen=True)
class _Piece:
    start: int
    end: int
    calls: list[Call]
    problem: str = ""  # why it cannot be read
    formal: bool = True  # a list, an object or a tag, unlike anything in a sentence
    named: bool = True  # has named arguments


class Gathered(NamedTuple):
    """The calls of a reply and their text; `problem` says why they cannot be read."""

    source: str
    calls: list[Call]
    problem: str = ""


def gather(text: str, names: set[str]) -> Gathered:
    text = text[-MOST_TEXT:]
    if any(name.replace("_", "\\_") + "(" in text for name in names if "_" in name):
        text = text.replace("\\_", "_")  # Markdown's escapes: get\_time(...)
    scan = _Scan(text, names)
    pieces = _without_mentions(text, list(scan.pieces(0, len(text))), names)
    kept = _merge(text, _runs(text, pieces, names))
    problem = next((p.problem for p in kept if p.problem), "" if kept else "no call of a function")
    if scan.readings < 0:
        problem = "too much, or too tangled, to read"
    elif not problem and 0 <= scan.unclosed < kept[-1].end and _CUT_SHORT.fullmatch(text, kept[-1].end):
        problem = "a list of calls that is cut short"
    source = "\n".join(text[piece.start : piece.end] for piece in kept)
    return Gathered(source, [call for piece in kept for call in piece.calls], problem)


# --- finding
class _Scan:
    """One pass over a text with a budget of `readings`; `unclosed` is where the last open list begins."""

    def __init__(self, text: str, names: set[str]) -> None:
        self.text, self.names = text, names
        self.readings, self.unclosed = _MOST_READINGS, -1

    def pieces(self, at: int, stop: int) -> Iterator[_Piece]:
        while self.readings >= 0 and (opener := _OPENER.search(self.text, at, stop)):
            at = opener.end()
            if opener["tag"]:
                pieces = self._tag(opener["tag"], opener.start(), at)
            elif opener["name"]:
                pieces = self._call(opener["name"], opener.start(), at)
            else:
                pieces = self._brackets(opener.start())
            for piece in pieces:
                at = max(at, piece.end)
                if piece.calls or piece.problem:
                    yield piece

    def _read(self, start: int, end: int) -> str:
        self.readings -= end - start + _OVERHEAD
        return self.text[start:end]

    def _tag(self, name: str, start: int, body: int) -> Iterator[_Piece]:
        limit = body + MOST_CHARACTERS
        end = _TAG_END.search(self.text, body, limit)
        inner = self._read(body, end.start() if end else min(limit, len(self.text)))
        call = syntax.tag_call(name, inner, _PARAMETER.findall(inner)) if end else None
        if call and end:
            yield _Piece(start, end.end(), [call])
        elif name in self.names:
            yield _Piece(start, body, [], "a tag that cannot be read")

    def _call(self, name: str, start: int, arguments: int) -> Iterator[_Piece]:
        if name in _WRAPPERS and name not in self.names:
            return
        named = _NAMED.match(self.text, arguments) is not None
        end, repair = self._close(arguments - 1)
        calls, problem = list[Call](), "a call that does not end" if end < 0 else ""
        if name not in self.names:
            inner = list(self.pieces(arguments, end)) if end > 0 else []
            if any(piece.formal for piece in inner) or not (inner or named):
                yield from inner
                return
            calls, problem = [Call(name)], "a call within another" if inner else problem
        elif end > 0:
            quoted = f"{self.text[start - 1 : start]}{self.text[end : end + 1]}" in ("''", '""')
            result = syntax.python_calls(self._read(start, end) + repair, quoted)
            calls, problem = (result, "") if isinstance(result, list) else ([], "a call that is not Python")
        yield _Piece(start, max(end, arguments), calls, problem, formal=False, named=named)

    def _brackets(self, start: int) -> Iterator[_Piece]:
        end, _ = self._close(start)
        if end < 0:
            self.unclosed = start
            return
        source = self._read(start, end)
        mentions = any(f"{name}(" in source for name in self.names)
        calls = syntax.python_calls(source) if source[0] == "[" else None
        if isinstance(calls, str) and mentions:
            yield _Piece(start, end, [], calls)
        elif isinstance(calls, list):
            called = self.text[end : end + 1] == "("  # [f(a=1)](...) is a link, or the call of a list
            yield _Piece(start, end, calls, "a list that is called" if called else "")
        elif object_calls := self._objects(syntax.load_object(source), start):
            yield _Piece(start, end, object_calls)
        elif not mentions:
            yield _Piece(start, end, [])  # nothing to look for inside

    def _objects(self, value: Any, start: int) -> list[Call] | None:
        if (calls := syntax.object_calls(value, self.names)) or not isinstance(value, dict):
            return calls
        label = _LABEL.search(self.text[max(0, start - _LOOK_BACK) : start])
        name = label[1] if label else ""
        return [Call(name, value)] if name in self.names and not syntax.is_schema(value) else None

    def _close(self, start: int) -> tuple[int, str]:
        """Return where a bracket closes (-1: nowhere), and ")" if only the end of a list implies it."""
        waiting: list[str] = []
        limit = min(len(self.text), start + MOST_CHARACTERS)
        result = -1, ""
        for token in _TOKEN.finditer(self.text, start, limit):
            first, end = token[0][0], token.end()
            if first in _CLOSERS:
                waiting.append(_CLOSERS[first])
            elif first in ")]}" and (expected := waiting.pop()) != first:
                if expected == ")" and first == "]" and not waiting and self.unclosed >= 0:
                    result = token.start(), ")"
                break
            elif first in ")]}" and not waiting:
                result = end, ""
                break
            if len(waiting) > _MOST_NESTING or token["cut"]:
                break
        else:
            end = limit
        self.readings -= end - start
        return result


# --- gathering
def _without_mentions(text: str, pieces: Sequence[_Piece], names: set[str]) -> list[_Piece]:
    listed = {call.name for piece in pieces if piece.formal for call in piece.calls} & names
    unlisted = names - listed
    kept: list[_Piece] = []
    before, standing = 0, False
    for piece in pieces:
        since = max(before, piece.start - _LOOK_BACK)
        line = text.rfind("\n", since, piece.start) + 1
        lead = text[line or since : piece.start]
        standing = (line > 0 or before == 0 or standing) and _NO_WORDS.fullmatch(lead) is not None
        commented = "#" in lead
        standing = standing or (lead.rstrip(" \t\"'`*([").endswith(":") and not commented)
        before = piece.end
        new = any(call.name in unlisted for call in piece.calls) and not commented
        if piece.formal or standing or (piece.named and (new or not listed)):
            kept.append(piece)
    return kept


def _runs(text: str, pieces: Sequence[_Piece], names: set[str]) -> list[list[_Piece]]:
    """Group pieces with no words between them; unknown functions count only if clearly called."""
    runs: list[list[_Piece]] = []
    for piece in pieces:
        if runs and _NO_WORDS.fullmatch(text, runs[-1][-1].end, piece.start):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    known = [any(not p.calls or any(call.name in names for call in p.calls) for p in run) for run in runs]
    if any(known):
        return [run for run, knows in zip(runs, known, strict=True) if knows or any(map(_is_meant, run))]
    return [run for run in runs if any(piece.formal for piece in run)][-1:]


def _is_meant(piece: _Piece) -> bool:
    return piece.formal and all(c.named and not c.problem and syntax.is_literal(c.named) for c in piece.calls)


def _merge(text: str, runs: Sequence[Sequence[_Piece]]) -> list[_Piece]:
    kept, seen, end = list[_Piece](), Counter[Any](), 0
    for run in runs:
        if _CORRECTS.search(text, end, run[0].start):
            kept, seen = [], Counter()
        end = run[-1].end
        calls = (_key((call.name, call.named, call.problem)) for piece in run for call in piece.calls)
        new = Counter([*calls, *(piece.problem for piece in run if piece.problem)])
        if seen.total() <= new.total() and seen <= new:
            kept, seen = list(run), new
        elif not all(seen[key] >= count for key, count in new.items()):
            kept += run
            seen += new
    return kept


def _key(value: Any) -> Any:
    if isinstance(value, dict):
        return dict, tuple(sorted((key, _key(inner)) for key, inner in value.items()))
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(_key, value))
    return type(value), value

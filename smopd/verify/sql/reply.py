"""Find the SQL of a reply: the last query in its fenced blocks, otherwise in its text.

Prose around a query is cut off by trying what SQLite can parse. A later query that repeats a subquery of an
earlier one only explains it; one after EXPLAIN, CREATE ... AS or INSERT does not count. Queries inside JSON,
strings of a program, HTML and LaTeX boxes are found. Other SQL dialects are not translated.
"""

import html
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress

from smopd.verify.sql.query import BAD_QUERY, MOST_CHARACTERS, MOST_COPIES, TOKEN, copies, open_database

_MOST_STARTS, _MOST_CUTS = 20, 8
_FENCE = re.compile(r"(```|~~~)[ \t]*+(?:sqlite3?\b|sql\b)?(.*?)(?:\1|\Z)", re.DOTALL | re.IGNORECASE)
_WITH = r"WITH\s++(?:RECURSIVE\s++)?[\w\"`\[]++[^\n]{0,200}?\bAS\b"
_START = re.compile(rf"(?<![\w.])(?:SELECT\b|{_WITH})", re.IGNORECASE)
_INNER = ("(", "union", "all", "intersect", "except", "exists")  # stand before a query within another
_NO_QUERY = re.compile(  # stands before a query whose rows are not the answer
    r"(?i)\b(?:EXPLAIN(?:\s+QUERY\s+PLAN)?|INSERT\s+(?:OR\s+\w+\s+)?INTO\s+[\w\"`.\[\]]+(?:\s*\([^()]*\))?"
    r"|CREATE\s+(?:\w+\s+){0,5}[\w\"`.\[\]]+\s+AS)\s*\(?\s*\Z"
)
_CUT = re.compile(
    r"\n|[.:!]\s|[.*`]+\s*\Z|`|\s(?=(?:This|That|These|It|The|Here|Note|Explanation|In|I|You|We|Let|If)\s)"
)
_GOES_ON = re.compile(
    r"\s*+(?:FROM|WHERE|GROUP|ORDER|HAVING|LIMIT|UNION|INTERSECT|EXCEPT|(?:LEFT|INNER|CROSS)?\s*JOIN|AND|OR|ON)\b"
)
_NO_SYNTAX = re.compile("syntax error|incomplete input|unrecognized token|too big|too deep|stack overflow")
_FIELD = re.compile(r'(?i)"(?:\w*sql\w*|\w*query|\w*answer|statement)"\s*+:\s*+("(?:[^"\\]|\\.)*+")')
_ENTITY = re.compile(r"&(?:gt|lt|amp|quot|apos|#39);")
_SPACES = str.maketrans("\u00a0\u2007\u202f", "   ", "\u200b\u2060\ufeff")
_QUOTE = re.compile(r"(?:^[ \t]*+>[^\n]*+\n?)+", re.MULTILINE)  # in Markdown


def extract_sql(text: str) -> str | None:
    text = text.translate(_SPACES)
    blocks = [match[2] for match in _FENCE.finditer(text)][-8:]
    if query := _last([query for block in blocks for query in _queries(block, fenced=True)]):
        return query
    if broken := [block for block in blocks if re.search(r"\b(?:SELECT|WITH)\b", block, re.IGNORECASE)]:
        return broken[-1].strip()[:MOST_CHARACTERS]
    prose = (_FENCE.sub("\n\n", text) if blocks else text)[-MOST_CHARACTERS:]
    prose = _QUOTE.sub(lambda q: re.sub(r"(?m)^[ \t]*> ?", "", q[0]) if _START.search(q[0]) else q[0], prose)
    if query := _last(_queries(re.sub(r"\\([_*])", r"\1", prose), fenced=False)):
        return query
    start = re.search(r"\bSELECT\b(?=[^;]{0,2000}?\bFROM\b)", prose)
    if start is None or _NO_QUERY.search(prose[: start.start()][-200:]):
        return None
    return prose[start.start() :].split(";")[0].strip()


def _last(queries: list[str]) -> str | None:
    """Return the last query that does not repeat a subquery of an earlier one."""
    queries = [query for query in queries if re.search(r"\bFROM\b", query, re.IGNORECASE)] or queries
    plain = ["".join(query.lower().split()) for query in queries]
    for number in reversed(range(len(queries))):
        if not any(f"({plain[number]})" in before for before in plain[:number]):
            return queries[number]
    return None


def _queries(text: str, fenced: bool) -> list[str]:
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text[-MOST_CHARACTERS:])
    if fields := [field for match in _FIELD.finditer(text) if _START.search(field := _decode(match[1]))]:
        return [query for field in fields for query in _queries(field, fenced=True)]
    seen = text
    if fenced:  # SQL comments hold no query; in prose a dash is no comment
        seen = "".join(" " * len(t[0]) if t["comment"] else t[0] for t in TOKEN.finditer(text))
    every = [match.start() for match in _START.finditer(seen)]
    outer = [at for at in every if not text[max(0, at - 30) : at].rstrip().lower().endswith(_INNER)]
    queries, at = list[str](), 0
    for start in (outer or every)[-_MOST_STARTS:]:
        if start < at:
            continue
        if _NO_QUERY.search(text[max(0, start - 200) : start]):
            at = _statement_end(text, start)[0]
            continue
        for stop in _stops(text, start, fenced):
            if _is_query(query := text[start:stop].strip()):
                queries.append(query)
                at = stop
                break
    return queries


def _decode(field: str) -> str:
    with suppress(ValueError):
        return str(json.loads(field, strict=False))
    return ""


def _stops(text: str, start: int, fenced: bool) -> Iterator[int]:
    """Yield where a query that starts here may end, the likeliest place first."""
    before = text[max(0, start - 80) : start].rstrip()
    # The quotes, brace or tag around the query.
    mark = next((mark for mark in ('"""', "'''", '"', "'", "`", "{", ">") if before.endswith(mark)), None)
    if mark and (close := text.find({"{": "}", ">": "</"}.get(mark, mark), start)) > 0:
        yield close
    end, blanks = _statement_end(text, start)
    if fenced or not blanks:
        yield end
    yield from reversed(blanks[:_MOST_CUTS] if fenced else blanks[:1])
    if not fenced:
        cuts = [cut.start() for cut in _CUT.finditer(text, start, blanks[0] if blanks else end)]
        yield from reversed(cuts[-_MOST_CUTS:])


def _statement_end(text: str, start: int) -> tuple[int, list[int]]:
    """Return the end of a statement, and the blank lines before it that may end it as well."""
    depth, blanks, upper = 0, list[int](), text[start] in "SW"
    for token in TOKEN.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        command = token[0] == "\\" and text[token.end() :][:1] in ("g", "G")
        if token[0] in (";", "；") or depth < 0 or command:
            return token.start(), blanks
        if token["blank"] and depth == 0 and not (upper and _GOES_ON.match(text, token.end())):
            common = text[start : start + 4].upper() == "WITH" and not blanks
            joined = text[max(start, token.start() - 30) : token.start()].rstrip().lower().endswith(_INNER)
            if not ((common or joined) and text[token.end() :].lstrip()[:6].upper() == "SELECT"):
                blanks.append(token.start())
    return len(text), blanks


def _is_query(text: str) -> bool:
    if not text or copies(text) > MOST_COPIES:
        return bool(text)
    try:
        with closing(open_database()) as connection:
            connection.execute(f"EXPLAIN {text}")
    except BAD_QUERY as error:
        return isinstance(error, sqlite3.Error) and not _NO_SYNTAX.search(str(error))
    return True

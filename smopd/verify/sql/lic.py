"""LiC's own rule for SQL, for comparison with published figures: it forgives literals and DISTINCT.

Any literal of the reply, the LIMIT included, may be replaced by any of the reference's; the first hundred
combinations are tried, the unchanged query first. DISTINCT is dropped from both queries. Rows are a multiset,
ordered if the reference contains an ORDER BY anywhere; the column order may differ between databases; two
empty results are equal. LiC uses Spider's databases; without them synthetic ones serve, except those on which
the reference's sort keys tie.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from smopd.verify.sql.query import BAD_QUERY, Row, run_query
from smopd.verify.sql.reference import Suite

_MOST_QUERIES = 100
_MOST_ROWS = 100_000
_TOKEN = re.compile(
    r"(?s)(?P<value>'(?:[^']|'')*+'|\"[^\"]*+\"|(?<![\w.])(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?![\w.]))"
    r"|--[^\n]*+|/\*.*?\*/|`[^`]*+`|\[[^\]]*+\]|\w++|\s++|."
)
_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)", re.IGNORECASE)
_SPLIT = re.compile(r"([<>!]) =")  # some models write >= like this


def lic_difference(suite: Suite, query: str, deadline: float) -> str:
    """Return how a query differs by LiC's rule; empty if it does not."""
    reference = _without_distinct(suite.reference.query)
    ordered = "order by" in reference.lower()
    expected: dict[int, tuple[int, list[Row]]] = {}
    steady = [number for number, (_, e) in enumerate(suite.databases) if all(n == 1 for n, _ in e.runs)]
    numbers = steady if ordered and suite.synthetic and steady else range(len(suite.databases))
    for candidate in itertools.islice(_candidates(query, reference), _MOST_QUERIES):
        with suppress(*BAD_QUERY):
            for number in numbers:
                connection = suite.databases[number][0]
                if number not in expected:
                    expected[number] = run_query(connection, reference, deadline, _MOST_ROWS)
                width, rows = expected[number]
                result = run_query(connection, candidate, deadline, len(rows))
                if not _same(width, rows, *result, ordered):
                    break
            else:
                return ""
    return "another result than the reference's by LiC's rule"


def _candidates(query: str, reference: str) -> Iterator[str]:
    """Yield the query, then every variant with literals of the reference in place of its own."""
    tokens = list(_TOKEN.finditer(_without_distinct(query)))
    slots = [number for number, token in enumerate(tokens) if token["value"]]
    pieces = [token[0] for token in tokens]
    yield "".join(pieces)
    values = dict.fromkeys(token[0] for token in _TOKEN.finditer(reference) if token["value"])
    for chosen in itertools.product(values, repeat=len(slots)):
        for number, value in zip(slots, chosen, strict=True):
            pieces[number] = value
        yield "".join(pieces)


def _without_distinct(query: str) -> str:
    query = _SPLIT.sub(r"\1=", _YEAR.sub("2020", query))
    return "".join(token[0] for token in _TOKEN.finditer(query) if token[0].lower() != "distinct")


def _same(width: int, rows: Sequence[Row], other_width: int, others: Sequence[Row], ordered: bool) -> bool:
    if not rows and not others:
        return True
    if len(rows) != len(others) or width != other_width:
        return False
    columns = range(width)
    wanted = [Counter(row[i] for row in rows) for i in columns]
    actual = [Counter(row[i] for row in others) for i in columns]
    bag = Counter(rows)
    for order in itertools.islice(itertools.permutations(columns), 5040):
        if all(actual[j] == wanted[i] for i, j in enumerate(order)):
            turned = [tuple(row[j] for j in order) for row in others]
            if turned == rows if ordered else Counter(turned) == bag:
                return True
    return False

"""LiC's own rule for SQL, for comparison with published figures: it forgives literals and DISTINCT.

Any literal of the reply, the LIMIT included, may be replaced by any of the reference's; the first hundred
combinations are tried, the unchanged query first. DISTINCT is dropped from both queries. Rows are a multiset,
ordered if the reference contains an ORDER BY anywhere; the column order may differ between databases; two
empty results are equal. LiC uses Spider's databases; without them synthetic ones serve, except those on which
the reference's sort keys tie.
"""

import itertools
import re
from collections.abc import Iterator
from contextlib import suppress

from smopd.verify.sql.query import BAD_QUERY, run_query
from smopd.verify.sql.reference import Expected, Suite, plainly_expected

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
    results: dict[int, Expected] = {}
    steady = [number for number, (_, e) in enumerate(suite.databases) if all(n == 1 for n, _ in e.runs)]
    numbers = steady if ordered and suite.synthetic and steady else range(len(suite.databases))
    for candidate in itertools.islice(_candidates(query, reference), _MOST_QUERIES):
        with suppress(*BAD_QUERY):
            for number in numbers:
                connection = suite.databases[number][0]
                if number not in results:
                    result = run_query(connection, reference, deadline, _MOST_ROWS)
                    results[number] = plainly_expected(*result, ordered)
                expected = results[number]
                width, rows = run_query(connection, candidate, deadline, expected.count)
                if not expected.count and not rows:
                    continue
                orders = expected.orders(rows) if width == expected.width else ()
                if not any(expected.holds(rows, order) for order in orders):
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

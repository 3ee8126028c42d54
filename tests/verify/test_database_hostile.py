"""Hostile replies to database examples: each verdict comes in time, nothing raises, nothing is written."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sql_examples import PETS, correct

from smopd.data import Example
from smopd.verify.sql.database import verify_database
from smopd.verify.sql.query import TIMEOUT
from smopd.verify.verifiers import verify, verify_all
from smopd.verify.workers import GRACE

LONG = "replace(hex('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'), '6', hex(hex('aaaaaaaaaa')))"
DOUBLING = "WITH a AS (SELECT 1 x), " + ", ".join(
    f"{b} AS (SELECT p.x FROM {a} p, {a} q)"
    for a, b in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True)
)
BOMBS = [
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    f"WITH RECURSIVE t(n, b) AS (SELECT 1, '' UNION SELECT n + 1, {LONG} || n FROM t) SELECT count(*) FROM t",
    f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT n FROM t ORDER BY "
        f"trim({LONG}, {LONG} || n)",
    "SELECT count(*) FROM " + ", ".join(f"student s{i}, pet p{i}" for i in range(20)),
    "SELECT name FROM student ORDER BY (WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) "
        "SELECT max(n) FROM t)",
    "SELECT zeroblob(1000000000)", "SELECT hex(randomblob(1000000000))",
    "SELECT printf('%.*c', 1000000000, 'x')",
    "SELECT format('%999999999d', 1)",
    "SELECT " + "hex(" * 50 + "'a'" + ")" * 50, f"SELECT {LONG} LIKE '" + "%a" * 200 + "b' FROM student, pet",
    "SELECT load_extension('x')",
    f"{DOUBLING} SELECT x FROM p", "SELECT * FROM pragma_table_info('student')",
    "WITH a AS (SELECT 1) INSERT INTO student SELECT 1, 2, 3",
    "SELECT " + "(" * 9000 + "1" + ")" * 9000, "SELECT * FROM " + "(SELECT * FROM " * 500 + "pet" + ")" * 500,
    "SELECT -" + "(-" * 900 + "1" + ")" * 900,
    "SELECT count(*) FROM " + ", ".join(f"(SELECT 1 UNION ALL SELECT 2) a{i}" for i in range(30)),
    "SELECT " + "1," * 9000 + "1",
    "SELECT 1 " + "UNION SELECT 1 " * 1000, "SELECT CASE " + "WHEN 1 THEN CASE " * 900, "SELECT '",
    'SELECT "',
    "SELECT /*", "SELECT \0 FROM student", "SELECT \ud800",
]  # fmt: skip


@pytest.mark.parametrize("query", BOMBS, ids=range(len(BOMBS)))
def test_bombs_end_at_the_limit(query):
    verify_database(PETS, PETS["reference_sql"], timeout=60)  # the databases are made once
    start = time.monotonic()
    verdict = verify_database(PETS, f"```sql\n{query}\n```", timeout=0.5)
    assert time.monotonic() - start < 2.5
    assert not verdict.correct
    assert verdict.status in ("ok", "timeout", "no_answer")
    assert correct(PETS, PETS["reference_sql"])  # and the databases are as they were


PIECES = [
    "SELECT ",
    "WITH a AS (",
    "FROM student ",
    "name ",
    "'",
    '"',
    "`",
    "```",
    "```sql\n",
    "(",
    ")",
    ";",
    "/*",
    "--",
    "\n\n",
    "1",
    "\0",
    "é",
    ", ",
]


@settings(max_examples=150)
@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
        st.binary(max_size=300).map(lambda b: b.decode("latin-1")),
    )
)
def test_no_text_raises(text):
    verdict = verify_database(PETS, text, timeout=5)
    assert verdict.status in ("ok", "no_answer", "timeout")


@pytest.mark.parametrize(
    "piece",
    [
        *PIECES,
        "SELECT a FROM b ",
        "WITH x",
        "a",
        " ",
        "select * from (",
        "a AS (",
        "'a'--",
        "[",
        "SELECT 1;\n",
    ],
)
def test_a_megabyte_of_anything_is_quick(piece):
    for text in (piece * (1_000_000 // len(piece)), "```sql\n" + piece * (1_000_000 // len(piece))):
        start = time.monotonic()
        assert not verify_database(PETS, text, timeout=2).correct
        assert time.monotonic() - start < 5


# --- what SQLite itself cannot stop
def doubling(step: str) -> str:
    """Each step uses the one before it twice, and SQLite writes them all out before it runs anything."""
    steps = [f"c{i} AS (SELECT {step} AS x FROM c{i - 1})" for i in range(1, 30)]
    return f"WITH c0 AS (SELECT age AS x FROM student), {', '.join(steps)} SELECT x FROM c29"


EXAMPLE = Example("1", "database", "", ("goal",), "goal", PETS)
EXPLOSION = f"```sql\n{doubling('x + x')}\n```"
RIGHT = f"```sql\n{PETS['reference_sql']}\n```"


def test_a_verdict_has_a_deadline_however_it_is_asked_for(monkeypatch):
    assert verify(EXAMPLE, RIGHT).correct  # its process is there
    with monkeypatch.context() as short:  # given seconds, a fast machine runs out of memory first
        short.setattr("smopd.verify.tasks.database.TIMEOUT", 0.2)
        short.setattr("smopd.verify.workers.GRACE", 0.2)
        start = time.monotonic()
        assert verify(EXAMPLE, EXPLOSION).status == "timeout"
        assert time.monotonic() - start < 5
    assert verify(EXAMPLE, RIGHT).correct
    start = time.monotonic()
    verdicts = verify_all([(EXAMPLE, RIGHT), (EXAMPLE, EXPLOSION), (EXAMPLE, RIGHT)])
    assert [v.correct for v in verdicts] == [True, False, True]
    assert verdicts[1].status in ("timeout", "ok")
    assert time.monotonic() - start < TIMEOUT + GRACE + 10


@pytest.mark.parametrize("step", ["sum(x)", "(SELECT sum(c.x) FROM student c)", "coalesce(sum(x), sum(x))"])
def test_nested_sums_end(step):
    verdict = verify(EXAMPLE, f"```sql\n{doubling(step)}\n```")
    assert not verdict.correct
    assert verdict.status in ("ok", "timeout")

"""The database verifier: references pass, also rewritten; mutants are rejected; nothing crashes, hangs or
writes.

Mutants come from sqlglot, one change each. One that passes is called equivalent only for a logical reason
(`equivalence`), and a slow test then also runs it on 80 further, larger databases of other seeds; one that
passes without a reason counts as missed.
"""

import json
import random
import re
import sqlite3
import time
from collections import Counter

import pytest
from conftest import shared
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_mutants import equivalence, mutants
from sqlglot import exp, parse_one

from smopd.data.training_set.readers import spider_ddl
from smopd.errors import UserError
from smopd.seeds import rng
from smopd.verify.database import difference, verify_database
from smopd.verify.sql_facts import query_facts
from smopd.verify.sql_reply import extract_sql
from smopd.verify.sql_schema import parse_schema
from smopd.verify.sql_suite import Suite, made_databases, suite_of
from smopd.verify.synthetic_db import synthesise
from smopd.verify.synthetic_values import Profile

PETS = {
    "schema_sql": """CREATE TABLE student (id INTEGER PRIMARY KEY, name TEXT, age INT);
        CREATE TABLE pet (id INTEGER PRIMARY KEY, owner INT, kind TEXT NOT NULL, 2nd_name TEXT,
        weight_(kg) REAL,
        FOREIGN KEY (owner) REFERENCES student(id));""",
    "reference_sql": "SELECT s.name FROM student s JOIN pet p ON s.id = p.owner WHERE p.kind = 'dog' AND "
    "s.age > 20",
}


def correct(answer: dict, query: str) -> bool:
    verdict = verify_database(answer, f"Here it is:\n```sql\n{query}\n```", timeout=60)
    assert verdict.status == "ok", verdict
    return verdict.correct


@pytest.fixture(scope="module")
def items() -> list[dict]:
    return json.loads(shared("data/lic/database.json").read_text())


# --- references
def rewritten(query: str) -> list[str]:
    """The same query in other clothes: spaces, keywords in lower case, other aliases, selected columns the
    other way round.
    """
    tree = parse_one(query, read="sqlite")
    for column in list(tree.find_all(exp.Column)):
        if column.table:
            column.args["table"].set("this", f"x_{column.table}")
    for table in tree.find_all(exp.Table):
        table.set("alias", exp.TableAlias(this=exp.to_identifier(f"x_{table.alias_or_name}")))
    texts = [
        re.sub(r" (?=\w+ AS | = |WHERE)", "\n\t", query),
        tree.sql("sqlite", pretty=True),
        f"-- the answer\n{query.rstrip('; ')} ;",
    ]
    if isinstance(tree, exp.Select):
        tree.set("expressions", tree.expressions[::-1])
        texts.append(tree.sql("sqlite", normalize_functions="lower"))
    return texts


def test_every_reference_of_lic_is_right_however_written(items):
    for item in items:
        assert correct(item, item["reference_sql"]), item["task_id"]
        for text in rewritten(item["reference_sql"]):
            assert correct(item, text), (item["task_id"], text)


def test_spider_references_are_right():
    count = 100
    schemas = {
        t["db_id"]: spider_ddl(t) for t in json.loads(shared("data/raw/spider/tables.json").read_text())
    }
    files = [shared(f"data/raw/spider/{name}.json") for name in ("dev", "train_spider_slim")]
    golds = random.Random(11).sample([q for file in files for q in json.loads(file.read_text())], count)
    wrong = []
    for gold in golds:
        answer = {"reference_sql": gold["query"], "schema_sql": schemas[gold["db_id"]]}
        verdict = verify_database(answer, gold["query"], timeout=60)
        wrong += [] if verdict.correct else [(gold["db_id"], gold["query"], verdict)]
    assert len(wrong) <= count // 100, (
        wrong
    )  # some golds show nothing: they ask for what their schema rules out


# --- mutants
def survivors(items: list[dict]) -> tuple[Counter, Counter, list]:
    """Per kind how many mutants ran and how many were rejected, and those that passed with the reason why
    they may.
    """
    ran, rejected, passed = Counter(), Counter(), []
    for item in items:
        schema = parse_schema(item["schema_sql"])
        for kind, tree, spot, was in mutants(item):
            verdict = verify_database(item, f"```sql\n{tree.sql('sqlite')}\n```", timeout=60)
            assert verdict.status == "ok", verdict
            if "does not run" not in verdict.detail:
                ran[kind] += 1
                rejected[kind] += not verdict.correct
                passed += (
                    [(kind, item, tree.sql("sqlite"), equivalence(kind, spot, was, schema))]
                    if verdict.correct
                    else []
                )
    return ran, rejected, passed


def test_mutants_are_rejected(items):
    ran, rejected, passed = survivors(items)
    reasons = Counter(kind for kind, *_, why in passed if why)
    print({kind: f"{rejected[kind]} of {ran[kind]}, {reasons[kind]} equivalent" for kind in ran})
    missed = [(kind, text) for kind, _, text, why in passed if not why]
    assert len(missed) <= 0.03 * (sum(ran.values()) - sum(reasons.values())), missed
    assert sum(ran.values()) > 1000


@pytest.mark.slow
def test_mutants_called_equivalent_agree_on_40_larger_databases(items):
    for kind, item, text, why in survivors(items)[2]:
        suite = suite_of(item["schema_sql"], item["reference_sql"], (), time.monotonic() + 60)
        facts = suite.facts | query_facts(parse_one(text, read="sqlite"), suite.schema)
        facts.most = max(facts.most, 20)  # sixty rows a table
        for connection, expected, _ in made_databases(
            suite, facts, f"more {kind}", 40, time.monotonic() + 600
        ):
            one = Suite(suite.schema, facts, suite.reference, [(connection, expected)], synthetic=False)
            assert not difference(one, text, time.monotonic() + 60), (why, item["reference_sql"], text)
            connection.close()


# --- what counts as the same result
@pytest.mark.parametrize(
    ("reference", "candidate", "right"),
    [
        # the order of columns is free
        ("SELECT name, age FROM student", "SELECT age, name FROM student", True),
        ("SELECT name, age FROM student", "SELECT name, age, id FROM student", False),
        # an order nobody asked for
        ("SELECT name FROM student", "SELECT name FROM student ORDER BY age", True),
        # ties fall either way
        ("SELECT name FROM student ORDER BY age", "SELECT name FROM student ORDER BY age, id DESC", True),
        ("SELECT name FROM student ORDER BY age LIMIT 2",
        "SELECT name FROM student ORDER BY age, name LIMIT 2", True),
        ("SELECT name FROM student ORDER BY age", "SELECT name FROM student", False),
        ("SELECT name FROM student ORDER BY age LIMIT 1",
         "SELECT name FROM student WHERE age = (SELECT min(age) FROM student)", False),
        ("SELECT avg(age) FROM student", "SELECT sum(age) * 1.0 / count(age) FROM student", True),
        ("SELECT count(*) FROM student", "SELECT count(id) FROM student", True),
        ("SELECT count(*) FROM student", "SELECT count(age) FROM student", False),
        ("SELECT name FROM student WHERE id NOT IN (SELECT owner FROM pet)",
         "SELECT name FROM student s WHERE NOT EXISTS (SELECT 1 FROM pet p WHERE p.owner = s.id)", True),
        ("SELECT name FROM student WHERE id NOT IN (SELECT owner FROM pet)",
         "SELECT s.name FROM student s LEFT JOIN pet p ON p.owner = s.id WHERE p.id IS NULL", True),
        # no student: NULL, no row
        ("SELECT max(age) FROM student", "SELECT age FROM student ORDER BY age DESC LIMIT 1", False),
        ("SELECT name FROM student WHERE age > 20 AND age < 30",
        "SELECT name FROM student WHERE age BETWEEN 21 AND 29", True),
        ("SELECT name FROM student WHERE age > 20",
        "SELECT name FROM student WHERE age > 20 AND name != 'Zed'", False),
        ('SELECT weight_ FROM pet', "SELECT 1", None),
        ('SELECT "2nd_name", "weight_(kg)" FROM pet', 'SELECT "weight_(kg)", "2nd_name" FROM pet', True),
    ],
)  # fmt: skip
def test_same_result(reference, candidate, right):
    verdict = verify_database({**PETS, "reference_sql": reference}, f"```sql\n{candidate}\n```", timeout=60)
    assert (verdict.status, verdict.correct) == (("error", False) if right is None else ("ok", right)), (
        verdict
    )


QUERY = "SELECT name FROM student WHERE id IN (SELECT owner FROM pet)"


@pytest.mark.parametrize(
    "reply",
    [
        QUERY, f"{QUERY};", f"```sql\n{QUERY};\n```", f"```\n{QUERY}\n```", f"```SQL {QUERY}```",
            f"Use `{QUERY}` here.",
        f"I'll select the names from the table.\n\n{QUERY}\n\nThat's all: it doesn't repeat.",
        f"The query is: {QUERY}. It lists names.",
        f"First try:\n```sql\nSELECT 1\n```\nBetter:\n```sql\n{QUERY}\n```\nIt runs.",
        f"```sql\nSELECT 1;\n{QUERY};\n```",
        f"```sql\n{QUERY}", f"Run this:\n{QUERY}\nThis lists them.", f"(as in {QUERY})",
        f"```sql\n{QUERY}\n```\n```python\nprint(1)\n```",
    ],
)  # fmt: skip
def test_query_is_found(reply):
    assert (extract_sql(reply) or "").rstrip(";") == QUERY


def test_status_says_what_happened():
    assert verify_database(PETS, "I need to know more. Which table with which names?").status == "no_answer"
    assert verify_database(PETS, "").status == "no_answer"
    assert (
        verify_database({**PETS, "reference_sql": "SELECT nothing FROM nowhere"}, "SELECT 1").status
        == "error"
    )
    assert verify_database({"reference_sql": "SELECT 1"}, "SELECT 1").status == "error"
    broken = verify_database(PETS, "```sql\nSELECT name FROM student WHERE\n```")
    assert (broken.status, broken.correct) == ("ok", False)
    assert "does not run" in broken.detail
    assert "no such column" in verify_database(PETS, "SELECT nam FROM student").detail


def test_real_databases_are_used(tmp_path):
    file = tmp_path / "pets" / "pets.sqlite"
    file.parent.mkdir()
    connection = sqlite3.connect(file)
    connection.executescript(
        "CREATE TABLE student (id, name, age); INSERT INTO student VALUES (1, 'Ann', 30), (2, 'Bob', 20)"
    )
    connection.close()
    answer = {"schema_sql": "", "reference_sql": "SELECT name FROM student WHERE age > 20", "db_id": "pets"}
    for place in (file, tmp_path):
        assert verify_database(answer, "SELECT name FROM student WHERE id = 1", database=place).correct
        assert not verify_database(answer, "SELECT name FROM student WHERE id = 2", database=place).correct
    assert (
        "authori" in verify_database(answer, "WITH a AS (SELECT 1) DELETE FROM student", database=file).detail
    )
    with pytest.raises(UserError):
        verify_database({**answer, "db_id": "cats"}, "SELECT 1", database=tmp_path)


def test_every_schema_loads_and_its_keys_hold(items):
    for ddl in {item["schema_sql"] for item in items}:
        schema = parse_schema(ddl)
        assert len(schema) == ddl.count("CREATE TABLE") - ("sqlite_sequence" in ddl)
        facts = query_facts(parse_one("SELECT 1 FROM " + ", ".join(schema)), schema)
        tables = synthesise(schema, facts, Profile(20, 4, 0.5, 0.2), rng("keys", ddl))
        columns = {
            n: {c: [row[i] for row in tables[n]] for i, c in enumerate(t.columns)} for n, t in schema.items()
        }
        for name, table in schema.items():
            for key in table.unique:
                values = [v for v in zip(*(columns[name][c] for c in key), strict=True) if None not in v]
                assert len(values) == len(set(values))
            for column, (parent, target) in table.foreign.items():
                assert set(columns[name][column]) - {None} <= set(columns[parent][target]), (name, column)


# --- hostile replies
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


@settings(max_examples=150, deadline=None)
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

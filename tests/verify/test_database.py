"""The database verifier: references pass, however written; which results are the same; which query counts."""

import json
import random
import re
import sqlite3

import pytest
from conftest import shared
from sqlglot import exp, parse_one
from support.sql_examples import PETS, correct, lic_items

from smopd.data.training_set.readers import spider_ddl
from smopd.errors import UserError
from smopd.seeds import rng
from smopd.verify.sql.database import verify_database
from smopd.verify.sql.facts import query_facts
from smopd.verify.sql.reply import extract_sql
from smopd.verify.sql.schema import parse_schema
from smopd.verify.sql.synthetic import Profile, synthesise


@pytest.fixture(scope="module")
def items() -> list[dict]:
    return lic_items()


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
        # all that tie with the last one that a LIMIT lets through
        ("SELECT name FROM student ORDER BY age LIMIT 1",
         "SELECT name FROM student WHERE age = (SELECT min(age) FROM student)", True),
        ("SELECT name FROM student WHERE age = (SELECT min(age) FROM student)",
         "SELECT name FROM student ORDER BY age LIMIT 1", False),
        ("SELECT name FROM student ORDER BY age LIMIT 1",
         "SELECT name FROM student ORDER BY age LIMIT 2", False),
        ("SELECT name FROM student LIMIT 3", "SELECT name FROM student", False),
        ("SELECT avg(age) FROM student", "SELECT sum(age) * 1.0 / count(age) FROM student", True),
        ("SELECT count(*) FROM student", "SELECT count(id) FROM student", True),
        ("SELECT count(*) FROM student", "SELECT count(age) FROM student", False),
        ("SELECT name FROM student WHERE id NOT IN (SELECT owner FROM pet)",
         "SELECT name FROM student s WHERE NOT EXISTS (SELECT 1 FROM pet p WHERE p.owner = s.id)", True),
        ("SELECT name FROM student WHERE id NOT IN (SELECT owner FROM pet)",
         "SELECT s.name FROM student s LEFT JOIN pet p ON p.owner = s.id WHERE p.id IS NULL", True),
        # NULL, no row and 0 say the same of nothing
        ("SELECT max(age) FROM student", "SELECT age FROM student ORDER BY age DESC LIMIT 1", True),
        ("SELECT sum(age) FROM student", "SELECT coalesce(sum(age), 0) FROM student", True),
        ("SELECT count(*) FROM pet WHERE kind = 'dog'",
         "SELECT sum(CASE WHEN kind = 'dog' THEN 1 ELSE 0 END) FROM pet", True),
        ("SELECT count(*) FROM pet WHERE kind = 'dog'",
         "SELECT count(*) FROM pet WHERE kind = 'dog' GROUP BY kind", False),
        # NULLs: a foreign key has none, unless the reference asks; nor a column that is compared or averaged
        ("SELECT id FROM student EXCEPT SELECT owner FROM pet",
         "SELECT id FROM student WHERE id NOT IN (SELECT owner FROM pet)", True),
        ("SELECT count(*) FROM pet", "SELECT count(owner) FROM pet", True),
        ("SELECT owner, count(*) FROM pet GROUP BY owner",
         "SELECT s.id, count(*) FROM student s JOIN pet p ON p.owner = s.id GROUP BY s.id", True),
        ("SELECT count(*) FROM pet WHERE owner IS NULL", "SELECT count(*) FROM pet WHERE owner = 0", False),
        ("SELECT p.id, s.name FROM pet p LEFT JOIN student s ON s.id = p.owner",
         "SELECT p.id, s.name FROM pet p JOIN student s ON s.id = p.owner", False),
        ("SELECT name FROM student WHERE name != 'Ann'",
         "SELECT name FROM student WHERE name != 'Ann' OR name IS NULL", True),
        ("SELECT avg(age) FROM student", "SELECT sum(age) * 1.0 / count(*) FROM student", True),
        # but COUNT(x) counts values
        ("SELECT name, count(*) FROM student GROUP BY name",
         "SELECT name, count(name) FROM student GROUP BY name", True),
        ("SELECT name, count(*) FROM student GROUP BY name",
         "SELECT name, count(age) FROM student GROUP BY name", False),
        ("SELECT count(DISTINCT kind) FROM pet", "SELECT count(kind) FROM pet", False),
        ("SELECT count(DISTINCT kind) FROM pet", "SELECT count(DISTINCT owner) FROM pet", False),
        # a name that stands for the thing: grouped by it is grouped by its key, but not the other way
        ("SELECT s.name, count(*) FROM student s JOIN pet p ON p.owner = s.id GROUP BY s.name",
         "SELECT s.name, count(*) FROM student s JOIN pet p ON p.owner = s.id GROUP BY s.id", True),
        ("SELECT s.name, count(*) FROM student s JOIN pet p ON p.owner = s.id GROUP BY s.id",
         "SELECT s.name, count(*) FROM student s JOIN pet p ON p.owner = s.id GROUP BY s.name", False),
        ("SELECT name FROM student EXCEPT SELECT s.name FROM student s JOIN pet p ON p.owner = s.id",
         "SELECT name FROM student WHERE id NOT IN (SELECT owner FROM pet)", True),
        ("SELECT kind FROM pet WHERE owner = 1 INTERSECT SELECT kind FROM pet WHERE owner = 2",
         "SELECT kind FROM pet WHERE owner = 1 AND id IN (SELECT id FROM pet WHERE owner = 2)", False),
        # how a text is stored is nobody's question
        ("SELECT count(*) FROM pet WHERE kind = 'Dog'",
         "SELECT count(*) FROM pet WHERE lower(kind) = 'dog'", True),
        ("SELECT count(*) FROM pet WHERE kind = 'Dog'", "SELECT count(*) FROM pet WHERE kind = 'dog'", False),
        # a LIMIT nobody asked for
        ("SELECT name FROM student", "SELECT name FROM student LIMIT 10", False),
        ("SELECT name FROM student", "SELECT name FROM student LIMIT 1000 OFFSET 0", False),
        ("SELECT DISTINCT kind FROM pet", "SELECT DISTINCT kind FROM pet LIMIT 0, 20;", False),
        ("SELECT count(*) FROM student", "SELECT count(*) FROM student LIMIT 10", True),
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
            n: {c: [row[i] for row in tables[n][1]] for i, c in enumerate(t.columns)}
            for n, t in schema.items()
        }
        for name, table in schema.items():
            for key in table.unique:
                values = [v for v in zip(*(columns[name][c] for c in key), strict=True) if None not in v]
                assert len(values) == len(set(values))
            for column, (parent, target) in table.foreign.items():
                assert set(columns[name][column]) - {None} <= set(columns[parent][target]), (name, column)

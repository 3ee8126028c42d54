"""By what a query is judged: literals in the user's spelling, LiC's own rule, and the user's databases."""

import json
import sqlite3

import pytest
from conftest import shared
from support.sql_examples import PETS, correct, lic_items

from smopd.data import Example
from smopd.data.training_set.readers import spider_ddl
from smopd.errors import UserError
from smopd.verify import tasks
from smopd.verify.tasks.database import use_databases
from smopd.verify.verifiers import verify, verify_all

SINGERS = """CREATE TABLE singer (id INTEGER PRIMARY KEY, name TEXT, country TEXT, sex TEXT, age INT);
CREATE TABLE song (id INTEGER PRIMARY KEY, singer_id INT, title TEXT, genre TEXT,
                   FOREIGN KEY (singer_id) REFERENCES singer(id));"""
FRENCH, JORDAN = "country = 'FR' AND sex = 'F'", "country = 'Chad' AND name = 'Jordan'"


@pytest.mark.parametrize(
    ("reference", "candidate", "text", "right"),
    [
        ("country = 'USA'", "country = 'united states'", "singers from the United States", True),
        ("country = 'USA'", "country = 'usa '", "singers from the usa", True),
        ("country = 'USA'", "country IN ('usa')", "singers from the usa", True),
        ("country = 'USA'", "LOWER(country) = 'united states'", "singers from the United States", True),
        ("country = 'USA'", "country = 'US'", "singers from the USA", False),  # not what the user said
        ("country = 'USA'", "country = 'Germany'", "singers from the USA, not Germany", False),
        ("country = 'USA'", "name = 'usa'", "singers from the usa", False),
        ("country = 'USA'", "country <> 'usa'", "singers from the usa", False),
        ("country = 'USA'", "country = 'singers'", "unusual singers", False),
        ("country != 'France'", "country <> 'french'", "singers who are not French", True),
        (FRENCH, "country = 'France' AND sex = 'female'", "female, from France", True),
        (FRENCH, "country = 'female' AND sex = 'female'", "female, from France", False),
        (FRENCH, "country = 'France' AND sex = 'male'", "female, not male, from France", False),
        (FRENCH, "country = 'France'", "female, from France", False),
        # the value of another column stands in the text as well
        (JORDAN, "country = 'Jordan' AND name = 'Chad'", "Jordan from Chad", False),
        (JORDAN, "country = 'chad' AND name = 'jordan'", "jordan from chad", True),
        ("name LIKE '%computer%'", "name LIKE '%the computer%'", "with the substring the computer", True),
        ("name LIKE '%computer%'", "name LIKE 'the computer%'", "with the substring the computer", False),
        ("name = 'Alton'", "name = 'Alton airport'", "the singer of the Alton airport", True),
        ("name = 'Alton'", "name = 'Alton airport'", "the singer of the 'Alton' airport", False),
        ("name = 'Alton Towers'", "name = 'Alton'", "the singer Alton Towers", False),
        ("name = '80000'", "name = '80,000'", "a name of 80,000", True),
        ("age > 20", "age > 30", "older than 20, certainly 30", False),
        ("name IN ('Ann', 'Bob')", "name = 'bob' OR name = 'ann'", "ann or bob", True),
        ("name IN ('Ann', 'Bob')", "name = 'bob' OR name = 'bob'", "ann or bob", False),
    ],
)  # fmt: skip
def test_literals_in_the_users_spelling(reference, candidate, text, right):
    answer = {"schema_sql": SINGERS, "reference_sql": f"SELECT id, age FROM singer WHERE {reference}"}
    query = f"SELECT id, age FROM singer WHERE {candidate}"
    assert correct(answer, query, texts=[text]) == right
    if right:
        assert correct(answer, query) == ("LOWER" in candidate and "usa" in candidate)


def test_the_users_words_reach_the_verifier():
    answer = {"schema_sql": SINGERS, "reference_sql": "SELECT id FROM singer WHERE country = 'USA'"}
    query = "SELECT id FROM singer WHERE country = 'united states'"
    for shards, full in ((("singers", "of the United States"), "singers"), (("singers",), "united states")):
        verdict = verify(Example("1", "database", "", shards, full, answer), query)
        assert verdict.correct
        assert (verdict.extracted, verdict.detail) == (query, "with literals in the user's spelling")
    assert not verify(Example("1", "database", "", ("singers",), "singers", answer), query).correct


# --- LiC's own rule
@pytest.mark.parametrize(
    ("reference", "candidate", "right"),
    [
        ("SELECT kind FROM pet WHERE owner = 3", "SELECT kind FROM pet WHERE owner = 99", True),
        ("SELECT kind FROM pet WHERE owner = 3", "SELECT kind FROM pet WHERE owner = 'x' OR owner = 5", True),
        ("SELECT kind FROM pet WHERE owner = 3", "SELECT kind FROM pet WHERE owner > 3", False),
        ("SELECT kind FROM pet WHERE kind = 'dog'", 'SELECT kind FROM pet WHERE kind = "cat"', True),
        ("SELECT DISTINCT kind FROM pet", "SELECT kind FROM pet", True),
        ("SELECT count(kind) FROM pet", "SELECT count(DISTINCT kind) FROM pet", True),
        ("SELECT kind FROM pet", "SELECT id FROM pet", False),
        ("SELECT name, age FROM student", "SELECT age, name FROM student", True),
        ("SELECT id FROM student ORDER BY id LIMIT 3", "SELECT id FROM student ORDER BY id LIMIT 9", True),
        ("SELECT name FROM student ORDER BY id", "SELECT name FROM student ORDER BY id DESC", False),
        ("SELECT name FROM student", "SELECT nothing FROM student", False),
    ],
)  # fmt: skip
def test_lics_rule(reference, candidate, right):
    assert correct({**PETS, "reference_sql": reference}, candidate, rule="lic") == right


def test_lics_rule_is_a_setting():
    answer = {"schema_sql": SINGERS, "reference_sql": "SELECT DISTINCT name FROM singer WHERE age > 20"}
    example = Example("1", "database", "", ("goal",), "goal", answer)
    query = "SELECT name FROM singer WHERE age > 30"
    assert tasks.rule("database") == "suite"
    assert not verify(example, query).correct
    try:
        tasks.use_rules({"database": "lic"})
        assert verify(example, query).correct
        assert not verify(example, "SELECT name FROM singer WHERE age < 30").correct
    finally:
        tasks.use_rules({})


def test_lics_rule_accepts_every_reference():
    for item in lic_items():
        assert correct(item, item["reference_sql"], rule="lic"), item["task_id"]


# --- the user's databases
def test_spider_dev_references_match_themselves_on_the_real_databases():
    schemas = json.loads(shared("data/raw/spider/tables.json").read_text())
    ddl = {schema["db_id"]: spider_ddl(schema) for schema in schemas}
    golds = json.loads(shared("data/raw/spider/dev.json").read_text())
    place = shared("data/spider_dbs")
    pairs = []
    for gold in golds:
        answer = {"reference_sql": gold["query"], "schema_sql": ddl[gold["db_id"]], "db_id": gold["db_id"]}
        example = Example("1", "database", "", (gold["question"],), gold["question"], answer)
        pairs.append((example, f"```sql\n{gold['query']}\n```"))
    try:
        use_databases(place)
        verdicts = verify_all(pairs)
        missing = Example("1", "database", "", ("goal",), "goal", {**PETS, "db_id": "nowhere"})
        with pytest.raises(UserError, match="nowhere"):
            verify(missing, "SELECT 1")
    finally:
        use_databases(None)
    assert len(verdicts) == 1034
    assert all(verdict.correct for verdict in verdicts)


def test_on_real_databases_a_spelling_is_forgiven_only_where_the_reference_finds_something(tmp_path):
    file = tmp_path / "singers.sqlite"
    connection = sqlite3.connect(file)
    connection.executescript(
        SINGERS + "INSERT INTO singer VALUES (1, 'Ann', 'USA', 'F', 30), (2, 'Bob', 'united states', 'M', 30)"
    )
    connection.close()
    query = "SELECT id FROM singer WHERE country = 'united states' AND age > 20"
    for spelling, right in (("USA", True), ("U.S.", False)):
        reference = f"SELECT id FROM singer WHERE country = '{spelling}'"
        answer = {"schema_sql": SINGERS, "reference_sql": reference}
        assert correct(answer, query, texts=["of the united states"], database=file) == right

"""Messages of a database question that are made from its reference query."""

import json
import random

import pytest
from conftest import shared

from smopd.data.sharding import check_shards
from smopd.data.training_set.sql_query import Schema, is_noun, plural, singular
from smopd.data.training_set.sql_shards import WORDING, shard_query

CONCERTS = {
    "db_id": "concerts",
    "table_names": ["singers", "concert", "singer in concert", "has award"],
    "table_names_original": ["Singer", "Concert", "Singer_In_Concert", "Has_Award"],
    "column_names": [
        [-1, "*"], [0, "singer id"], [0, "name"], [0, "country"], [0, "age"], [0, "discovered by"],
        [1, "concert id"], [1, "title"], [1, "year"], [1, "venue"], [2, "singer id"], [2, "concert id"],
    ],
    "column_names_original": [
        [-1, "*"], [0, "Singer_ID"], [0, "Name"], [0, "Country"], [0, "Age"], [0, "Discovered_By"],
        [1, "Concert_ID"], [1, "Title"], [1, "Year"], [1, "Venue"], [2, "Singer_ID"], [2, "Concert_ID"],
    ],
    "column_types": ["text", "number", "text", "text", "number", "text", "number", "text", "number", "text",
                     "number", "number"],
    "primary_keys": [1, 6],
    "foreign_keys": [[10, 1], [11, 6]],
}  # fmt: skip
SCHEMA = Schema(CONCERTS)
JOINED = (
    "FROM singer AS T1 JOIN singer_in_concert AS T2 ON T1.singer_id = T2.singer_id "
    "JOIN concert AS T3 ON T2.concert_id = T3.concert_id"
)


def conversations(query: str) -> list[str]:
    """What a query's messages say, lower case, for forty seeds."""
    told = [shard_query(query, SCHEMA, seed) for seed in range(40)]
    return [" ".join(messages).lower() for messages in told if messages]


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("SELECT name, age FROM singer WHERE country = 'France' AND age > 30",
         ["singers", "names", "ages", "country", "france", "above 30"]),
        ('SELECT name FROM singer WHERE country = "France" OR country = "Spain"', ["france or spain"]),
        ("SELECT count(*) FROM concert WHERE year >= 2014", ["concerts", "year", "2014 or later"]),
        ("SELECT DISTINCT country FROM singer WHERE age BETWEEN 20 AND 30",
         ["between 20 and 30", "countries"]),
        ("SELECT name FROM singer WHERE name LIKE '%ab%' ORDER BY age DESC",
         ["'ab'", "age", "highest first"]),
        ("SELECT name, country FROM singer ORDER BY age LIMIT 1", ["lowest age", "name", "country"]),
        ("SELECT name FROM singer ORDER BY age DESC LIMIT 3", ["only", " 3", "highest age"]),
        ("SELECT title, venue FROM concert ORDER BY year DESC LIMIT 1", ["latest year", "title", "venue"]),
        ("SELECT country, count(*) FROM singer GROUP BY country", ["countries", "singers", "country"]),
        ("SELECT country, avg(age) FROM singer GROUP BY country", ["average age", "country"]),
        ("SELECT country FROM singer GROUP BY country HAVING count(*) > 2",
         ["country", "more than 2 singers"]),
        (f"SELECT T3.title {JOINED} WHERE T1.name = 'Ann'", ["concerts", "titles", "singer", "ann"]),
        (f"SELECT T1.name {JOINED} GROUP BY T1.singer_id HAVING count(*) >= 2",
         ["names", "singer", "at least 2 singers in concert"]),
        ("SELECT name, age FROM singer WHERE age > (SELECT avg(age) FROM singer)",
         ["above the average of all"]),
        ("SELECT name, age FROM singer WHERE singer_id NOT IN (SELECT singer_id FROM singer_in_concert)",
         ["singers in concert", "ages"]),
        ("SELECT venue FROM concert WHERE year = 2014 INTERSECT SELECT venue FROM concert WHERE year = 2015",
         ["2014", "2015", "venues"]),
    ],
)  # fmt: skip
def test_every_part_of_a_query_is_told(query: str, parts: list[str]):
    texts = conversations(query)
    assert len(texts) == 40
    assert [(part, text) for text in texts for part in parts if part not in text] == []
    assert len(set(texts)) > 20  # in several ways


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM singer",  # nothing to tell in turns
        "SELECT age + 1, name, country FROM singer",
        "SELECT discovered_by, name, age FROM singer",  # "the discovered by"
        "SELECT name, age FROM singer UNION SELECT title, year FROM concert",
        "SELECT a.name, b.age FROM singer AS a JOIN singer AS b ON a.age = b.age",
        "SELECT name, title, age FROM singer, concert",  # every pair
        "SELECT name, age FROM singer LEFT JOIN concert ON singer.singer_id = concert.concert_id",
        "SELECT name, age FROM singer WHERE country = 'null'",
        "SELECT name, age FROM singer WHERE age > (SELECT avg(age) FROM singer WHERE country = 'France')",
        "SELECT name, age, country FROM singer LIMIT 3",
        "SELECT sum(age), avg(age) FROM singer ORDER BY age LIMIT 3",
        "SELECT name, age FROM nowhere",
        "not a query",
    ],
)
def test_what_has_no_plain_wording_has_no_messages(query: str):
    assert [shard_query(query, SCHEMA, seed) for seed in range(10)] == [()] * 10


def test_the_goal_comes_first_and_the_same_seed_says_the_same():
    query = "SELECT name, age FROM singer WHERE country = 'France' ORDER BY name"
    goals = {text.format(subjects="singers") for text in WORDING["goal"]}
    assert {shard_query(query, SCHEMA, seed)[0] for seed in range(100)} == goals
    assert shard_query(query, SCHEMA, 5) == shard_query(query, SCHEMA, 5)


def test_short_conversations_say_things_in_two_steps():
    lengths = [len(shard_query("SELECT name FROM singer WHERE age > 30", SCHEMA, seed)) for seed in range(50)]
    assert set(lengths) == {4}  # goal, column, and the condition in two
    joined = [shard_query("SELECT name FROM singer WHERE age > 30", SCHEMA, seed) for seed in range(50)]
    for messages in joined:
        at = next(i for i, message in enumerate(messages) if "above 30" in message)
        assert "age" in messages[at - 1], messages


@pytest.mark.parametrize(
    ("one", "several"),
    [("singer", "singers"), ("city", "cities"), ("person", "people"), ("box", "boxes"), ("staff", "staff"),
     ("day", "days"), ("status", "statuses"), ("date of birth", "dates of birth"), ("class", "classes")],
)  # fmt: skip
def test_singular_and_plural(one: str, several: str):
    assert (plural(one), singular(several), plural(several), singular(one)) == (several, one, several, one)


def test_names_that_are_no_nouns():
    assert [is_noun(name) for name in ("price", "speed", "bed", "directed by", "founded", "has pet")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_spiders_training_questions():
    """Seven of ten get messages that keep every number, name and quotation and add none; most have 4 or 5."""
    folder = shared("data/raw/spider")
    schemas = {row["db_id"]: Schema(row) for row in json.loads((folder / "tables.json").read_text())}
    rows = random.Random(0).sample(json.loads((folder / "train_spider_slim.json").read_text()), 600)
    told = [(row["question"], shard_query(row["query"], schemas[row["db_id"]], 1)) for row in rows]
    lengths = [len(s) for question, s in told if s and not check_shards(question, s, most_new=1.0)]
    assert len(lengths) > 0.65 * len(rows)
    assert sum(length in (4, 5) for length in lengths) > 0.75 * len(lengths)
    assert max(lengths) <= 9

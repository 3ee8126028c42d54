"""The training set: what is read, left out, verified, chosen and told in the card; then the whole of it from
the real files.
"""

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import shared
from hypothesis import given
from hypothesis import strategies as st

from smopd.data import load_examples
from smopd.data.example import Example
from smopd.data.sharding import numbers
from smopd.data.training_set import DOMAINS, BuildPlan, build, readers, write
from smopd.data.training_set.compose import shares
from smopd.data.training_set.overlap import HeldOut
from smopd.data.training_set.readers import spider_ddl
from smopd.errors import UserError
from smopd.evaluation import verify
from smopd.verify import sandbox
from smopd.verify.sql.database import shows_something
from smopd.verify.tasks.actions import render

PROPERTIES = {"base": {"type": "integer"}, "unit": {"type": "string"}}
FUNCTION = {"name": "area", "parameters": {"type": "dict", "properties": PROPERTIES, "required": ["base"]}}
TABLES = {
    "db_id": "zoo", "table_names_original": ["animal", "keeper"],
    "column_names_original": [[-1, "*"], [0, "id"], [0, "name"], [0, "age"], [1, "kid"], [1, "animal_id"]],
    "column_types": ["text", "number", "text", "number", "number", "number"], "primary_keys": [1, 4],
    "foreign_keys": [[5, 1]],
}  # fmt: skip
STORY = (
    "Tom and Ana grow plums behind the old red barn near the river. They picked {} plums. How many "
    "plums are there?"
)


def lines(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def gsm(question, value="3"):
    return {"question": question, "answer": f"so\n#### {value}"}


def call(number, content, truth=None, roles=("user",)):
    asked = {"id": f"simple_python_{number}", "function": [FUNCTION],
             "question": [[{"role": role, "content": content} for role in roles]]}  # fmt: skip
    return asked, {"id": asked["id"], "ground_truth": truth or [{"area": {"base": [10], "unit": ["", "cm"]}}]}


@pytest.fixture
def raw(tmp_path):
    """A folder of raw files in which every rule has something to do."""
    folder = tmp_path / "raw"
    lines(folder / "gsm8k_train.jsonl", [
        gsm("Tom has 3 apples. Ana has 5 apples. How many apples are there?", "8"),
        gsm("Tom has 3 apples. Ana has 5  apples. How many apples are there?", "8"),  # there twice
        gsm(STORY.format(40)),  # a test question with another number
        gsm("What is 3 times 5?", "15"),  # one shard
        gsm("Eva buys 4 pens. Each costs $1,200. How much does she pay?", "4,800"),
        # no number in the answer
        gsm("Leo reads 4 books. Each takes 2 days. How long does he read?", "none"),
    ])  # fmt: skip
    lines(folder / "gsm8k_test.jsonl", [gsm(STORY.format(25))])
    asked, answers = zip(
        call(0, "Find the area of a triangle with a base of 10 units and a side in cm."),
        call(1, "Find the area. The base is 10.", roles=("system", "user")),
        call(2, "Find the area. The base is 10.", [{"volume": {"base": [10]}}]),  # not offered
        call(
            3, "Find the area. The base is 11.", [{"area": {"unit": ["cm"]}}]
        ),  # what is required is missing
        strict=True,
    )
    lines(folder / "bfcl/BFCL_v4_simple_python.json", asked)
    lines(folder / "bfcl/possible_answer/BFCL_v4_simple_python.json", answers)
    lines(
        folder / "bfcl/BFCL_v4_parallel.json",
        [call(9, "Find the area. The base is 99 and nobody knows it.")[0]],
    )
    train = [
        {
            "question": "What are the names of the animals that are older than 5?",
            "query": "SELECT name FROM animal WHERE age > 5",
        },
        {
            "question": "List the ids of all animals sorted by age.",
            "query": "SELECT id FROM animal ORDER BY age",
        },
        {"question": "List the sizes of all animals sorted by age.", "query": "SELECT size FROM animal"},
        {
            "question": "List the names of animals that are nothing.",
            "query": "SELECT name FROM animal WHERE 1 = 2",
        },
        {"question": "How many keepers are there?", "query": "SELECT count(*) FROM keeper"},
    ]
    (folder / "spider").mkdir()
    (folder / "spider/tables.json").write_text(json.dumps([TABLES, {**TABLES, "db_id": "held"}]))
    held = {
        "question": "List the names of animals sorted by id.",
        "query": "SELECT name FROM animal",
        "db_id": "held",
    }
    (folder / "spider/train_spider.json").write_text(
        json.dumps([*({**row, "db_id": "zoo"} for row in train), held])
    )
    (folder / "spider/dev.json").write_text(
        json.dumps([{"question": "Anything?", "query": "SELECT 1", "db_id": "held"}])
    )
    lines(folder / "mbpp.jsonl", [
        {"text": "Write a function to add two numbers.", "code": "def add(a, b):\r\n    return a + b",
        "task_id": 7,
         "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"], "test_setup_code": ""},
        {"text": "Write a function to subtract two numbers.", "code": "def sub(a, b):\r\n    return a + b",
        "task_id": 8,
         "test_list": ["assert sub(3, 2) == 1"], "test_setup_code": ""},
    ])  # fmt: skip
    with gzip.open(folder / "HumanEval.jsonl.gz", "wt") as file:
        file.write(json.dumps({"prompt": 'def f(x):\n    """Return nothing of the kind."""\n'}) + "\n")
    return folder


def test_a_small_build(raw, tmp_path):
    built = build(BuildPlan(raw, total=0))
    by_id = {e.id: e for e in built.examples}
    assert set(by_id) == {
        "gsm8k/train/0",
        "gsm8k/train/4",
        "bfcl/simple_python_0",
        "spider/train/0",
        "spider/train/1",
        "mbpp/7",
    }
    assert built.rejected == {
        "math": {"there twice": 1, "fewer than two shards": 1, "the reference does not verify": 1},
        "actions": {"more than one user turn, or a system turn": 1, "the reference does not verify": 1,
                    "the answer calls a function that is not offered": 1},
        "database": {"the reference does not run": 1,
        "the reference gives the same result on every database": 1,
                     "fewer than two shards": 1},
        "code": {"the reference does not verify": 1},
    }  # fmt: skip
    assert built.overlaps == {
        "math": {"the same text": 1}, "actions": {}, "database": {"a database of the evaluation set": 1},
        "code": {},
    }  # fmt: skip
    code = by_id["mbpp/7"]
    assert code.shards == ("Write a function to add two numbers.",
        "It should pass this test: assert add(1, 2) == 3",
                           "And this one: assert add(0, 0) == 0")  # fmt: skip
    assert "assert add(0, 0) == 0" in code.full
    sql = by_id["spider/train/0"]
    assert sql.answer["db_id"] == "zoo"
    assert 'FOREIGN KEY ("animal_id") REFERENCES "animal" ("id")' in sql.system
    assert verify(sql, "SELECT name FROM animal WHERE 5 < age").correct
    assert not verify(sql, "SELECT name FROM animal WHERE age >= 5").correct
    assert verify(by_id["bfcl/simple_python_0"], '[area(base=10, unit="cm")]').correct
    assert verify(by_id["gsm8k/train/4"], "The answer is 4800.").correct
    card = write(built, tmp_path / "train.jsonl")
    assert load_examples(tmp_path / "train.jsonl") == built.examples
    assert json.loads((tmp_path / "train.jsonl.card.json").read_text()) == card
    text = (tmp_path / "train.jsonl.card.md").read_text()
    for fragment in (
        "there twice: 1",
        "CC BY-SA 4.0",
        "Apache-2.0",
        card["sha256"],
        "gsm8k_test.jsonl",
        card["inputs"]["mbpp.jsonl"],
    ):
        assert fragment in text
    assert str(tmp_path) not in text + json.dumps(card)


def test_every_count_adds_up(raw):
    built = build(BuildPlan(raw, total=0))
    for domain in DOMAINS:
        assert (
            built.read[domain]
            == len(built.valid[domain]) + built.rejected[domain].total() + built.overlaps[domain].total()
        )


def test_an_evaluation_file_of_ones_own_is_kept_clear_of(raw, tmp_path):
    row = {"id": "x", "task": "math", "shards": ["a?", "b"], "answer": {"value": "1"},
           "full": "Eva buys 9 pens. Each costs $3. How much does she pay?"}  # fmt: skip
    lines(tmp_path / "mine.jsonl", [row])
    built = build(BuildPlan(raw, (str(tmp_path / "mine.jsonl"),), ("math",), total=0))
    assert [e.id for e in built.examples] == ["gsm8k/train/0"]
    assert built.evaluation[-1]["file"] == "mine.jsonl"


def test_database_questions_are_told_from_their_queries(raw):
    """Where the messages keep what the question says; else the question is split."""
    train = json.loads((raw / "spider/train_spider.json").read_text())
    query = "SELECT name, age FROM animal WHERE age > 5 ORDER BY age DESC LIMIT 3"
    asked = {
        "What are the names of the 3 oldest animals over 5?": True,
        "Name the 4 oldest. They are over 5.": False,
    }
    rows = [{"question": question, "query": query, "db_id": "zoo"} for question in asked]
    (raw / "spider/train_spider.json").write_text(json.dumps([*rows, *train[:1]]))
    built = build(BuildPlan(raw, domains=("database",), total=0))
    shards = {e.full: e.shards for e in built.examples}
    told, split = (shards[question] for question in asked)
    assert len(told) >= 4
    assert "animal" in told[0]
    assert "3" in told[-2] + told[-1]
    assert split == ("Name the 4 oldest.", "They are over 5.")
    assert built.sharder_counts["from the reference"] == 2  # train's first too


def test_a_validation_set_is_of_the_development_questions_that_are_not_evaluated(raw, tmp_path):
    query = "SELECT name, age FROM animal WHERE age > 5"
    texts = ["Which animals are older than 5?", "Who is over 5? List names and ages."]
    dev = [{"question": text, "query": query, "db_id": "zoo"} for text in texts]
    (raw / "spider/dev.json").write_text(json.dumps(dev))
    answer = {
        "reference_sql": query,
        "schema_sql": "CREATE TABLE animal (name TEXT, age INT)",
        "db_id": "zoo",
    }
    row = {"id": "x", "task": "database", "shards": ["a", "b"], "full": texts[0], "answer": answer}
    lines(tmp_path / "held.jsonl", [row])
    plan = BuildPlan(raw, (str(tmp_path / "held.jsonl"),), ("database",), total=0, validation=True)
    built = build(plan)
    assert [(e.id, e.full) for e in built.examples] == [("spider/dev/1", texts[1])]
    card = write(built, tmp_path / "valid.jsonl")
    assert card["options"]["validation"]
    assert "spider/dev.json" in card["inputs"]
    with pytest.raises(UserError, match="math: expected some of database"):
        build(BuildPlan(raw, domains=("math",), validation=True))


def test_near_duplicates_are_found_and_others_left():
    out = HeldOut()
    out.add(
        "math",
        "Max bought stamps at the post office. Some had a snowflake design and some had a rose design. He "
        "bought 16.",
    )
    near = (
        "Bella bought stamps at the post office. Some had a snowflake design and some had a rose "
        "design. She bought 11."
    )
    assert out.overlap("math", near, {}) == "nearly the same text"
    assert out.overlap("code", near, {}) is None  # each domain by itself
    assert (
        out.overlap(
            "math",
            "Bella bought stamps at the post office. How many did she keep after the day was over?",
            {},
        )
        is None
    )


def test_without_a_sandbox_code_is_taken_unverified_and_the_card_says_so(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "isolation", lambda: "none")
    built = build(BuildPlan(raw, domains=("code",), total=0))
    assert len(built.examples) == 2
    write(built, tmp_path / "t.jsonl")
    assert "no sandbox" in (tmp_path / "t.jsonl.card.md").read_text()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: (raw / "gsm8k_train.jsonl").unlink(),
         "gsm8k_train.jsonl: missing; it comes from github.com/openai/grade-school-math"),
        (lambda raw: (raw / "mbpp.jsonl").unlink(), "google-research"),
        (lambda raw: (raw / "spider/tables.json").unlink(), "github.com/taoyds/spider"),
        (lambda raw: (raw / "bfcl/BFCL_v4_simple_python.json").unlink(), "github.com/ShishirPatil/gorilla"),
        (lambda raw: (raw / "gsm8k_train.jsonl").write_text('{"question": "x"}\n'),
         "gsm8k_train.jsonl, line 1, field 'answer': missing"),
        (lambda raw: (raw / "gsm8k_train.jsonl").write_text("{oops\n"),
        "gsm8k_train.jsonl, line 1: not valid JSON"),
        (lambda raw: (raw / "gsm8k_train.jsonl").write_text('{"question": 3, "answer": "#### 1"}\n'),
        "line 1, field 'question'"),
        (lambda raw: (raw / "gsm8k_train.jsonl").write_text('{"question": "x", "answer": "1"}\n'),
        "line 1, field 'answer'"),
        (lambda raw: (raw / "spider/train_spider.json").write_text('[{"question": "x", "query": "y", '
            '"db_id": "no"}]'),
         "train_spider.json, item 1, field 'db_id': 'no' is not in"),
        (lambda raw: (raw / "bfcl/possible_answer/BFCL_v4_simple_python.json").write_text(""),
        "line 1, field 'id'"),
        (lambda raw: (raw / "mbpp.jsonl").write_text('{"text": "x", "code": "y", "task_id": 1, '
            '"test_list": []}'),
         "field 'test_list'"),
    ],
)  # fmt: skip
def test_what_is_missing_or_broken_is_named(raw, spoil, message):
    spoil(raw)
    with pytest.raises(UserError) as error:
        build(BuildPlan(raw))
    assert message in str(error.value)


def test_domains_are_chosen_and_checked(raw):
    (raw / "gsm8k_train.jsonl").unlink()
    built = build(BuildPlan(raw, domains=("code", "database"), total=0))
    assert Counter(e.task for e in built.examples) == {"code": 1, "database": 2}
    with pytest.raises(UserError, match="--domains: poetry"):
        build(BuildPlan(raw, domains=("poetry",)))


@given(st.dictionaries(st.sampled_from(DOMAINS), st.integers(0, 50), min_size=1), st.integers(0, 120))
def test_shares_are_even_and_exact(available, total):
    counts = shares(available, total)
    assert all(0 <= counts[d] <= available[d] for d in available)
    assert sum(counts.values()) == (min(total, sum(available.values())) or sum(available.values()))
    short = [counts[d] for d in available if counts[d] < available[d]]
    assert (
        not short or max(counts.values()) <= max(short) + 1
    )  # nobody has more while another could have had it


def test_the_seed_chooses(raw):
    every = {e.id for e in build(BuildPlan(raw, total=0)).examples}
    drawn = [
        tuple(e.id for e in build(BuildPlan(raw, domains=("math", "database"), total=2, seed=s)).examples)
        for s in range(6)
    ]
    assert len(set(drawn)) > 1
    assert all(set(ids) < every and len(ids) == 2 for ids in drawn)


def test_published_answers_are_rendered_as_replies():
    truth = [
        {
            "a.b": {
                "x": [1, 2],
                "y": ["", 3],
                "z": [""],
                "o": [{"k": ["v", "w"], "l": [""]}],
                "l": [[1, 2]],
                "s": ["it's"],
            }
        }
    ]
    assert render(truth) == "[a.b(x=1, y=3, o={'k': 'v'}, l=[1, 2], s=\"it's\")]"
    assert render("nonsense") == ""


# --- the real files
def lic() -> tuple[str, ...]:
    return tuple(str(shared(f"data/lic/{task}.json")) for task in DOMAINS)


def test_the_cheap_test_of_queries_agrees_with_the_verifier():
    items = list(readers.spider(shared("data/raw")))[::175]
    for item in items:
        full = verify(
            Example(item.id, "database", "", (item.text,), item.text, item.answer), item.reference
        ).correct
        assert (shows_something(item.answer) is None) == full, item.id
    tables = json.loads(shared("data/raw/spider/tables.json").read_text())
    assert all(
        spider_ddl(entry).count("CREATE TABLE") == len(entry["table_names_original"]) for entry in tables
    )


def test_a_part_is_the_same_with_another_hash_seed_and_number_of_workers(tmp_path):
    """Byte for byte. On the first lines of every file: the whole set, twice, would take minutes."""
    folder, part = shared("data/raw"), tmp_path / "raw"
    calls = "BFCL_v4_simple_python.json"
    for name in ("gsm8k_train.jsonl", "mbpp.jsonl", f"bfcl/{calls}", f"bfcl/possible_answer/{calls}"):
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_text("".join((folder / name).read_text().splitlines(keepends=True)[:100]))
    (part / "spider").mkdir()
    (part / "spider/tables.json").write_bytes((folder / "spider/tables.json").read_bytes())
    train = json.loads((folder / "spider/train_spider_slim.json").read_text())
    (part / "spider/train_spider_slim.json").write_text(json.dumps(train[::70]))
    script = (
        "import sys; from pathlib import Path; from smopd.data.training_set import *; "
        "write(build(BuildPlan(Path(sys.argv[1]), total=200, workers=int(sys.argv[2]))), Path('t.jsonl'))"
    )
    written = []
    for seed, workers in (("1", "1"), ("2", "3")):
        place = tmp_path / seed
        place.mkdir()
        run = [sys.executable, "-c", script, str(part), workers]
        subprocess.run(run, cwd=place, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
        written.append([(place / f"t.jsonl{end}").read_bytes() for end in ("", ".card.json", ".card.md")])
    assert written[0] == written[1]
    assert written[0][0].count(b"\n") == 200


@pytest.mark.long
def test_the_whole_set(tmp_path):
    held = [e for path in lic() for e in load_examples(path)]
    built = build(BuildPlan(shared("data/raw"), lic(), total=0))
    counts = Counter(e.task for e in built.examples)
    assert len(built.examples) >= 11_000
    assert counts["math"] > 7000
    assert counts["database"] > 4500
    assert counts["actions"] > 1500
    assert counts["code"] > 950
    assert not {e.full.lower() for e in held} & {e.full.lower() for e in built.examples}
    dev = {row["db_id"] for row in json.loads(shared("data/raw/spider/dev.json").read_text())}
    assert not dev & {e.answer.get("db_id") for e in built.examples}
    assert not [e.id for e in built.examples if e.id.startswith("bfcl/parallel_") and "multiple" not in e.id]
    assert all(len(e.shards) > 1 and len(e.full) <= 1200 for e in built.examples)
    for e in built.examples:
        assert not set(numbers(e.full)) - set(numbers(" ".join(e.shards))), e.id
    write(built, tmp_path / "all.jsonl")
    assert load_examples(tmp_path / "all.jsonl") == built.examples


def test_every_mbpp_item_shows_its_function():
    for item in readers.mbpp(shared("data/raw")):
        assert item.answer["test_list"][0].strip() in item.extra[0]
        assert item.extra[0].split(": ", 1)[1] in item.full

"""The reader: what it takes, and that every complaint names file, line and field."""

import json

import pytest
from conftest import shared

from smopd.data import load_examples, save_examples, scorable
from smopd.errors import UserError

GOOD = {
    "id": "a",
    "task": "math",
    "system": "s",
    "shards": ["x?", "y."],
    "full": "y. x?",
    "answer": {"value": "3"},
    "source": "me",
}


def write(tmp_path, *rows):
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


def test_our_jsonl_round_trips(tmp_path):
    examples = load_examples("pocket:eval:20")
    save_examples(tmp_path / "x.jsonl", examples)
    assert load_examples(tmp_path / "x.jsonl") == examples
    assert load_examples(tmp_path / "x.jsonl", limit=3) == examples[:3]


def test_blank_lines_and_separators_inside_strings_are_fine(tmp_path):
    odd = dict(GOOD, full="a\u2028b")  # a line separator that only JSON strings may hold
    assert len(load_examples(write(tmp_path, odd, "", dict(GOOD, id="b"), ""))) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{broken", "line 2: not valid JSON"),
        ([1], "line 2: expected a JSON object, found list"),
        ({k: v for k, v in GOOD.items() if k != "full"}, "line 2, field 'full': missing"),
        (dict(GOOD, shards=[]), "line 2, field 'shards': expected a non-empty list"),
        (dict(GOOD, shards="x"), "line 2, field 'shards'"),
        (dict(GOOD, shards=["x", " "]), "line 2, field 'shards', shard 2"),
        (dict(GOOD, shards=["x", 3]), "line 2, field 'shards', shard 2"),
        (dict(GOOD, id=""), "line 2, field 'id'"),
        (dict(GOOD, full=7), "line 2, field 'full'"),
        (dict(GOOD, task="poetry"), "line 2, field 'task': 'poetry'"),
        (dict(GOOD, answer="3"), "line 2, field 'answer': expected an object"),
        (dict(GOOD, answer={}), "line 2, field 'answer': a math answer needs 'value'"),
        (dict(GOOD, shard=["x"]), "line 2, field 'shard': unknown"),
    ],
)
def test_bad_lines(tmp_path, row, message):
    path = write(tmp_path, dict(GOOD, id="first"), row)
    with pytest.raises(UserError) as error:
        load_examples(path)
    assert str(error.value).startswith(f"{path}, {message}")


def test_other_complaints(tmp_path):
    with pytest.raises(UserError, match="same id 'a'"):
        load_examples(write(tmp_path, GOOD, GOOD))
    with pytest.raises(UserError, match="no such data file"):
        load_examples(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="holds no examples"):
        load_examples(write(tmp_path, ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is UTF-16 text"):
        load_examples(tmp_path / "b.jsonl")
    for name in ("pocket:test", "pocket:eval:x", "pocket:eval:0", "pocket:eval:3:4"):
        with pytest.raises(UserError, match="pocket world is named"):
            load_examples(name)


@pytest.mark.parametrize("task", ["math", "actions", "database", "code", "data2text", "summary"])
def test_lic_files_load_as_they_are(task):
    examples = load_examples(shared(f"data/lic/{task}.json"))
    raw = json.loads(shared(f"data/lic/{task}.json").read_text())
    assert len(examples) == len(raw)
    for example, item in zip(examples, raw, strict=True):
        assert list(example.shards) == [s["shard"] for s in item["shards"]]
        assert example.id == item["task_id"]
        assert example.system
        assert example.full


def test_lic_complaints(tmp_path):
    item = {
        "task_id": "t",
        "task": "math",
        "question": "q",
        "answer": "no hashes",
        "shards": [{"shard_id": 1, "shard": "x"}],
    }
    path = tmp_path / "lic.json"
    for change, message in (
        ({}, "item 1, field 'answer'"),
        ({"answer": "#### 3", "shards": ["x"]}, "item 1, field 'shards'"),
        ({"task": "poetry"}, "item 1, field 'task': 'poetry' is no task of LiC"),
        ({"task": "database"}, "item 1, field 'reference_sql': missing"),
        ({"task": "code", "prompt": "def f(): pass"}, "item 1, field 'test': missing"),
        ({"task": "summary"}, "item 1, field 'documents': missing"),
        ({"task": "data2text"}, "item 1, field 'table_html': missing"),
    ):
        path.write_text(json.dumps([item | change]))
        with pytest.raises(UserError, match=message.replace("(", r"\(")):
            load_examples(path)


def test_what_cannot_be_scored_is_read_and_then_refused_by_name():
    examples = load_examples(shared("data/lic/summary.json"))
    with pytest.raises(
        UserError, match=r"f\.json: .*: task 'summary' cannot be scored; the tasks that can are math"
    ):
        scorable(examples, "f.json")
    math = load_examples("pocket:eval:3")
    assert scorable(math, "x") == math


@pytest.mark.parametrize(
    ("task", "answer", "message"),
    [
        ("code", {}, "a code answer needs 'test' or 'test_list' or 'public_test_cases'"),
        ("database", {"reference_sql": "SELECT 1"}, "a database answer needs 'schema_sql'"),
        ("math", {}, "a math answer needs 'value'"),
    ],
)
def test_an_answer_has_what_its_verifier_needs(tmp_path, task, answer, message):
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps({"id": "a", "task": task, "shards": ["x", "y"], "full": "x y", "answer": answer})
    )
    with pytest.raises(UserError, match=message):
        load_examples(path)


def test_the_pocket_world_by_range():
    whole = load_examples("pocket:eval:30")
    assert load_examples("pocket:eval:11-30") == whole[10:]
    assert load_examples("pocket:eval:1-1") == whole[:1]
    for wrong in (
        "pocket:eval:0-3",
        "pocket:eval:5-3",
        "pocket:eval:0",
        "pocket:eval:-3",
        "pocket:eval:1-2-3",
        "pocket:test",
        "pocket:eval:",
    ):
        with pytest.raises(UserError, match="pocket:eval:401-800"):
            load_examples(wrong)

"""Data sets of the hub; here a local folder stands in for a name, through the same loader."""

import json
import sys

import pytest

from smopd.data import load_examples
from smopd.data.check import check_file
from smopd.errors import UserError

pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write(tmp_path, rows, name="train.jsonl"):
    (tmp_path / "set").mkdir(exist_ok=True)
    (tmp_path / "set" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_rows_are_examples_and_answers_may_be_json_text(tmp_path):
    examples = load_examples("pocket:eval:6")
    rows = [e.to_json() | {"answer": json.dumps(dict(e.answer)), "difficulty": 3} for e in examples]
    write(tmp_path, rows)
    write(tmp_path, rows[:2], "test.jsonl")
    assert load_examples("hf:./set") == examples
    assert load_examples("hf:./set:test") == examples[:2]


def test_columns_that_other_rows_have_are_no_fields_of_this_one(tmp_path):
    math = {
        "id": "1",
        "task": "math",
        "shards": ["Sum?", "1 and 2"],
        "full": "1 + 2?",
        "answer": {"value": "3"},
    }
    code = {
        "id": "2",
        "task": "code",
        "shards": ["f", "g"],
        "full": "fg",
        "answer": {"test": "x", "entry_point": "f"},
    }
    write(tmp_path, [math, code])
    assert [dict(e.answer) for e in load_examples("hf:./set")] == [math["answer"], code["answer"]]


def test_lic_items_are_read_as_they_are(tmp_path):
    item = {"task_id": "a", "task": "math",
        "shards": [{"shard_id": 1, "shard": "Sum?"}, {"shard_id": 2, "shard": "1, 2"}],
            "question": "1 + 2?", "answer": "so #### 3"}  # fmt: skip
    write(tmp_path, [item])
    (example,) = load_examples("hf:./set")
    assert (example.id, example.shards, dict(example.answer)) == ("a", ("Sum?", "1, 2"), {"value": "3"})


def test_complaints_name_the_set_the_row_and_the_field(tmp_path):
    good = {"id": "1", "task": "math", "shards": ["a", "b"], "full": "x", "answer": '{"value": "3"}'}
    write(tmp_path, [good, good | {"id": "2", "answer": "{"}])
    with pytest.raises(UserError, match=r"hf:\./set, row 2, field 'answer': not valid JSON"):
        load_examples("hf:./set")
    for name, message in (
        ("hf:./nowhere", "cannot be loaded"),
        ("hf:", "is named hf:OWNER/NAME"),
        ("hf:./set:dev", "cannot be"),
    ):
        with pytest.raises(UserError, match=message):
            load_examples(name)


def test_a_check_lists_every_broken_row(tmp_path):
    good = {"id": "1", "task": "math", "shards": ["a", "b"], "full": "x", "answer": '{"value": "3"}'}
    write(tmp_path, [good, good | {"id": "2", "answer": "{"}, good, good | {"id": "4", "task": "poetry"}])
    report = check_file("hf:./set")
    places = [error.split(":")[1] for error in report.errors]
    assert places == [
        "./set, row 2, field 'answer'",
        "./set, row 3, field 'id'",
        "./set, row 4, field 'task'",
    ]
    assert [example.id for example in report.examples] == ["1"]


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'smopd\[hf\]'"):
        load_examples("hf:owner/name")

"""`check_file`: every broken line is listed, what looks wrong is warned about, sound data pass without a
word.
"""

import json

import pytest
from conftest import shared

from smopd.data import load_examples, save_examples
from smopd.data.check import MOST, check_file
from smopd.errors import UserError
from smopd.verify import tasks

GOOD = {"id": "a", "task": "math", "system": "s", "shards": ["How many?", "Tom has 3 pens."],
    "full": "Tom has 3 pens. How many?",
        "answer": {"value": "3"}}  # fmt: skip


def write(tmp_path, *rows):
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return str(path)


def told(report):
    return {what: count for what, count, _ in report.warnings}


def test_sound_data_pass(tmp_path):
    assert not check_file(write(tmp_path, GOOD)).warnings
    save_examples(tmp_path / "p.jsonl", load_examples("pocket:train:50"))
    report = check_file(str(tmp_path / "p.jsonl"))
    assert not report.errors
    assert not report.warnings
    assert check_file("pocket:eval:5").to_json()["examples"] == 5


def test_every_broken_line_is_listed(tmp_path):
    bad = [{**GOOD, "id": f"b{n}", "shards": []} for n in range(30)]
    report = check_file(write(tmp_path, GOOD, "{oops", GOOD, {**GOOD, "id": "c", "task": "poetry"}, *bad))
    assert report.broken == 33
    assert len(report.errors) == MOST
    assert "line 2: not valid JSON" in report.errors[0]
    assert "line 3, field 'id': 'a' is that of line 1 too" in report.errors[1]
    assert "line 4, field 'task': 'poetry'" in report.errors[2]
    assert "line 5, field 'shards'" in report.errors[3]
    assert [e.id for e in report.examples] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no examples"),
        ("[1, 2", "line 1: not valid JSON"),
        ("[3]", "item 1: expected a JSON object"),
    ],
)
def test_files_without_examples(tmp_path, text, message):
    assert message in check_file(write(tmp_path, text)).errors[0]
    with pytest.raises(UserError, match="no such data file"):
        check_file(str(tmp_path / "nosuch.jsonl"))


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"system": " "}, "no system prompt"),
        ({"shards": ["Tom has 3 pens. How many?"]}, "a single shard: no conversation"),
        ({"shards": ["How many?", "Tom has pens."]}, "shards: a number is lost"),
        ({"shards": ["How many?", "He has 3 pens."], "full": "Then Tom has 3 pens. How many?"},
        "shards: a name is lost"),
        ({"answer": {"value": "many"}}, "the reference answer holds no number"),
        ({"task": "actions", "answer": {"calls": [{"f g": {}}]}}, "the reference calls do not verify"),
        ({"task": "database", "answer": {"reference_sql": "SELECT b FROM t",
        "schema_sql": "CREATE TABLE t (a INT)"}},
         "the reference does not run (queries are sampled)"),
        ({"task": "code", "answer": {"test_list": ["assert f( == 1"]}}, "the tests are not Python"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_warned_about(tmp_path, change, warning):
    report = check_file(write(tmp_path, GOOD | change))
    assert not report.errors
    assert told(report) == {warning: 1}


def test_the_same_request_twice(tmp_path):
    report = check_file(write(tmp_path, GOOD, {**GOOD, "id": "b", "full": GOOD["full"].replace(" ", "  ")}))
    assert report.warnings == [("the same request as another", 1, ["b (a)"])]


def test_overlap_with_an_evaluation_set(tmp_path):
    other = tmp_path / "eval.jsonl"
    other.write_text(
        json.dumps({**GOOD, "full": "Tom has 7 pens. How many?", "shards": ["How many?", "Tom has 7 pens."]})
    )
    report = check_file(write(tmp_path, GOOD), against=str(other))
    assert told(report) == {f"overlap with {other}: the same text": 1}


def test_sound_references_have_no_problem():
    sql = {"reference_sql": "SELECT a FROM t", "schema_sql": "CREATE TABLE t (a INT)"}
    calls = {"calls": [{"f": {"a": [1]}}]}
    for task, answer in (
        ("database", sql),
        ("actions", calls),
        ("code", {"test_list": ["assert f(1) == 1"]}),
        ("math", {"value": "$3"}),
    ):
        assert tasks.built_in()[task].reference_problem(answer) is None


@pytest.mark.parametrize("task", ["math", "actions", "database"])
def test_lic_is_read_and_its_references_are_sound(task):
    path = str(shared(f"data/lic/{task}.json"))
    report = check_file(path, against=path)
    assert not report.errors
    assert not [what for what in told(report) if "reference" in what]
    count = len(report.examples)  # every example overlaps itself
    assert sum(n for what, n in told(report).items() if what.startswith("overlap")) == count

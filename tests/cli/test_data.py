"""The data verbs as a user types them: results, one JSON object, refusals, exit codes."""

import json

import pytest
from conftest import shared
from support.chat_stub import said

from smopd.data import load_examples
from smopd.verify.tasks import forget

ROWS = [
    {"question": "Tom has 3 apples. Ana gives him 4. How many does he have?", "answer": 7},
    {"question": "What is 3 times 5?", "answer": "3 x 5 = 15\n#### 15"},
    {
        "id": "mine",
        "question": "A pen costs $1.50. Eva buys 4 pens. How much does she pay?",
        "answer": "#### 6.00",
        "extra": 1,
    },
]


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


@pytest.fixture
def pairs(tmp_path):
    write(tmp_path / "in.jsonl", ROWS)
    return tmp_path / "in.jsonl"


def test_shard_pairs(smopd, pairs):
    code, out, err = smopd("data", "shard", "in.jsonl", "out.jsonl", "--task", "math")
    assert code == 0, err
    assert "2 examples in out.jsonl; 1 rows dropped" in out
    assert "in.jsonl, line 2: fewer than two shards" in out
    first, second = load_examples("out.jsonl")
    assert first.shards == ("How many does he have?", "Tom has 3 apples.", "Ana gives him 4.")
    assert (first.id, first.answer, first.source) == ("in/1", {"value": "7"}, "in.jsonl")
    assert first.system.startswith("You solve math problems")
    assert (second.id, second.answer) == ("mine", {"value": "6.00"})
    code, _, err = smopd("data", "shard", "in.jsonl", "out.jsonl", "--task", "math")
    assert code == 2
    assert "out.jsonl: exists; nothing was written" in err


def test_shard_with_fields_and_a_system_of_ones_own(smopd, tmp_path):
    rows = [{"q": ROWS[0]["question"], "a": {"calls": [{"f": {}}], "functions": [{"name": "f"}]}, "id": 5}]
    (tmp_path / "in.json").write_text(json.dumps(rows))
    fields = ("--question", "q", "--answer", "a", "--system", "Use {functions}", "--source", "us")
    code, out, err = smopd("data", "shard", "in.json", "o.jsonl", "--task", "actions", *fields, "--json")
    assert code == 0, err
    assert json.loads(out) == {"file": "o.jsonl", "examples": 1, "dropped": []}
    (example,) = load_examples("o.jsonl")
    assert (example.id, example.system, example.source) == ("5", 'Use {"name": "f"}', "us")


def test_a_task_of_ones_own(smopd, tmp_path, pairs):
    (tmp_path / "my.py").write_text(
        "from smopd.evaluation import verifier\n\n"
        "@verifier('fruit', answer='value')\ndef fruit(answer, reply):\n    return str(answer['value']) in "
        "reply\n"
    )
    try:
        code, _, err = smopd(
            "data", "shard", "in.jsonl", "o.jsonl", "--task", "fruit", "--verifiers", "my.py"
        )
        assert code == 0, err
        code, out, err = smopd("data", "check", "o.jsonl", "--verifiers", "my.py", "--json")
        assert code == 0, err
        assert json.loads(out)["tasks"] == {"fruit": 2}
        counted = json.loads(smopd("data", "stats", "o.jsonl", "--verifiers", "my.py", "--json")[1])
        assert counted["tasks"]["fruit"]["examples"] == 2
        assert load_examples("o.jsonl")[0].answer == {"value": 7}
    finally:
        forget("fruit")
    code, _, err = smopd(
        "data", "shard", "in.jsonl", "p.jsonl", "--task", "sweets"
    )  # before its verifier is written
    assert code == 0
    assert "warning: 'sweets' has no verifier yet" in err


@pytest.mark.parametrize(
    ("rows", "args", "message"),
    [
        (["{oops"], [], "in.jsonl, line 1: not valid JSON"),
        ([{"question": "a"}], [], "in.jsonl, line 1, field 'answer': missing"),
        ([{"question": " ", "answer": 1}], [], "in.jsonl, line 1, field 'question'"),
        (
            [{"question": "a b. c?", "answer": "many"}],
            [],
            "in.jsonl, line 1, field 'answer': expected a number",
        ),
        ([{"question": "a b. c?", "answer": None}], [], "in.jsonl, line 1, field 'answer'"),
        (
            [{"question": "a b. c?", "answer": 3}],
            ["--task", "database"],
            "a database answer needs 'reference_sql'",
        ),
        (
            [{"question": "a b. c?", "answer": 3, "id": 1}] * 2,
            [],
            "in.jsonl, line 2, field 'id': 1 is that of",
        ),
        (
            [ROWS[1]],
            [],
            "in.jsonl: no row is left\nin.jsonl, line 2".replace("line 2", "line 1: fewer than two shards"),
        ),
        ([], [], "in.jsonl: holds no rows"),
        (ROWS, ["--sharder", "magic"], "--sharder: expected rule or llm"),
        (ROWS, ["--fallback", "hope"], "--fallback: expected rule or drop"),
        (ROWS, ["--sharder", "llm"], "--sharder llm needs the endpoint's base URL"),
        (ROWS, ["--url", "http://localhost:8000"], "--url: the rules ask no endpoint; add --sharder llm"),
        (ROWS, ["--task", "two words"], "--task: expected math, actions, database, code"),
        (ROWS, ["--task", "summary"], "--task: expected math, actions, database, code"),
    ],
)
def test_bad_pairs_are_named_and_nothing_is_written(smopd, tmp_path, rows, args, message):
    write(tmp_path / "in.jsonl", rows)
    code, out, err = smopd("data", "shard", "in.jsonl", "o.jsonl", "--task", "math", *args)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""
    assert not (tmp_path / "o.jsonl").exists()


def test_shard_by_a_model(smopd, chat_server, pairs, tmp_path):
    good = ["How many does he have?", "Tom has 3 apples.", "Ana gives him 4."]
    server = chat_server(lambda body, headers: said(json.dumps(good)))
    model = ("--sharder", "llm", "--url", server.url, "--served-model", "m", "--tries", "1")
    args = ("data", "shard", "in.jsonl", "o.jsonl", "--task", "math", *model, "--json")
    code, out, err = smopd(*args)
    assert code == 0, err
    assert json.loads(out)["sharder"] == {
        "from the cache": 0,
        "by the model": 1,
        "by rule instead": 1,
        "dropped": 1,
    }
    assert load_examples("o.jsonl")[0].shards == tuple(good)
    asked = len(server.requests)
    assert asked == 3
    (tmp_path / "o.jsonl").unlink()
    assert json.loads(smopd(*args)[1])["sharder"]["from the cache"] == 3
    assert len(server.requests) == asked


def test_check_lists_errors_and_warns(smopd, tmp_path):
    smopd("data", "pocket", "d.jsonl", "--count", "3")
    code, out, _ = smopd("data", "check", "d.jsonl", "--against", "d.jsonl")
    assert code == 0
    assert "warning: overlap with d.jsonl: the same text: 3" in out
    lines = (tmp_path / "d.jsonl").read_text().splitlines()
    write(tmp_path / "d.jsonl", [*lines, "{", "[]", lines[0]])
    code, out, err = smopd("data", "check", "d.jsonl")
    assert code == 2
    assert out == ""
    assert err.startswith("check") or err.startswith("error: d.jsonl, line 4")
    assert all(f"d.jsonl, line {n}" in err for n in (4, 5, 6))
    code, out, err = smopd("data", "check", "d.jsonl", "--json")
    assert code == 2
    assert len(json.loads(out)["errors"]) == 3


def test_stats(smopd, tmp_path):
    code, out, _ = smopd("data", "stats", "pocket:eval:40")
    assert code == 0
    assert "Shards per example" in out
    assert "█" in out
    stats = json.loads(smopd("data", "stats", "pocket:eval:40", "--plot", "a.svg", "--json")[1])
    assert (stats["examples"], stats["plot"]) == (40, "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert smopd("data", "stats", "pocket:eval:40", "--plot", "a.html")[0] == 0
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    for args, wrong in ((["--plot", "a.svg"], "a.svg: exists"), (["--plot", "a.png"], "--plot: expected")):
        code, _, err = smopd("data", "stats", "pocket:eval:40", *args)
        assert code == 2
        assert wrong in err


@pytest.fixture
def raw(tmp_path):
    """Raw math files alone."""
    (tmp_path / "raw").mkdir()
    write(
        tmp_path / "raw" / "gsm8k_train.jsonl",
        [{"question": row["question"], "answer": "#### 7"} for row in ROWS],
    )
    return tmp_path / "raw"


def test_build(smopd, raw, tmp_path):
    code, out, err = smopd("data", "build", "raw", "train.jsonl", "--domains", "math", "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert summary["examples"] == 2
    assert summary["domains"]["math"]["rejected"] == {"fewer than two shards": 1}
    assert [e.task for e in load_examples("train.jsonl")] == ["math", "math"]
    assert (tmp_path / "train.jsonl.card.md").exists()
    code, _, err = smopd("data", "build", "raw", "train.jsonl", "--domains", "math")
    assert code == 2
    assert "train.jsonl: exists; nothing was written" in err
    code, out, _ = smopd("data", "build", "raw", "two.jsonl", "--domains", "math")
    assert code == 0
    assert "math: fewer than two shards: 1" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "BFCL_v4_simple_python.json: missing; it comes from github.com/ShishirPatil/gorilla"),
        (["--domains", "math,poetry"], "--domains: poetry"),
        (["--domains", "math", "--eval", "nosuch.json"], "nosuch.json: no such data file"),
    ],
)
def test_a_build_that_cannot_be_writes_nothing(smopd, raw, tmp_path, args, message):
    code, out, err = smopd("data", "build", "raw", "train.jsonl", *args)
    assert code == 2
    assert message in err
    assert out == ""
    assert not list(tmp_path.glob("train.jsonl*"))
    assert smopd("data", "build", "nowhere", "train.jsonl")[0] == 2


def test_ctrl_c_leaves_nothing_half_written(smopd, raw, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("smopd.data.training_set.compose._verify_references", stopped)
    code, out, err = smopd("data", "build", "raw", "train.jsonl", "--domains", "math")
    assert code == 130
    assert "nothing was written" in err
    assert out == ""
    assert not list(tmp_path.glob("train.jsonl*"))


def test_a_model_shards_a_build_and_the_card_counts_it(smopd, chat_server, raw, tmp_path):
    server = chat_server(
        lambda body, headers: said('["How many does he have?", "Tom has 3 apples.", "Ana gives him 4."]')
    )
    code, out, err = smopd("data", "build", "raw", "t.jsonl", "--domains", "math", "--sharder", "llm",
        "--url", server.url,
                           "--served-model", "m", "--fallback", "drop", "--tries", "2", "--json")  # fmt: skip
    assert code == 0, err
    summary = json.loads(out)
    assert summary["sharder"] == {"kind": "llm", "by the model": 1, "dropped": 2, "from the cache": 0}
    assert "Sharder: llm (" in (tmp_path / "t.jsonl.card.md").read_text()


def test_lic_files_are_checked_as_they_are(smopd):
    code, out, err = smopd("data", "check", str(shared("data/lic/math.json")))
    assert code == 0, err
    assert "examples; tasks {'math':" in out

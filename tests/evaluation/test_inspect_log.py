"""An evaluation as a log that inspect_ai reads."""

import json

import pytest

from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import summarise
from smopd.evaluation.store import EvaluationFolder


def outcome(view, correct, number="1"):
    messages = ["How many?", "There are 3."] if view == "sharded" else ["There are 3. How many?"]
    turns = [{"user": text, "reply": f"reply to {text}", "stop": "end", "tokens": 2} for text in messages]
    full = "There are 3. How many?"
    verdict = (correct, True, "3", "ok", "")
    return Outcome(number, view, 0, "math", 2, turns, *verdict, "Be short.", full, {"value": "3"})


@pytest.fixture
def finished(tmp_path):
    """The folder of a finished evaluation of two conversations."""
    outcomes = [outcome("full", True), outcome("sharded", False)]
    folder = EvaluationFolder(tmp_path / "ev", {"model": "pocket", "data": "three.jsonl", "seed": 1})
    with folder:
        folder.add(outcomes)
        folder.finish(outcomes, summarise(outcomes) | {"code": "1"})
    return folder.path


@pytest.mark.inspect
@pytest.mark.parametrize("ending", ["eval", "json"])
def test_inspect_reads_what_is_written(finished, tmp_path, smopd, ending):
    inspect_log = pytest.importorskip(
        "inspect_ai.log", reason="needs inspect_ai: pip install 'smopd[inspect]'"
    )
    out = tmp_path / f"log.{ending}"
    code, stdout, err = smopd("eval", "inspect", str(finished), str(out), "--json")
    assert (code, json.loads(stdout)["log"]) == (0, str(out)), err
    log = inspect_log.read_eval_log(str(out))
    assert (log.status, log.eval.model, log.eval.dataset.samples) == ("success", "smopd/pocket", 1)
    full, sharded = log.samples
    assert (full.id, sharded.id, sharded.epoch) == ("full/1", "sharded/1", 1)
    roles = [message.role for message in sharded.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert sharded.messages[-1].content == "reply to There are 3."
    assert (full.scores["correct"].value, sharded.scores["correct"].value) == ("C", "I")
    assert {s.name: s.metrics["accuracy"].value for s in log.results.scores} == {"full": 1.0, "sharded": 0.0}


def test_what_cannot_be_written_says_why(finished, tmp_path, smopd, monkeypatch):
    code, _, err = smopd("eval", "inspect", str(finished), "log.txt")
    assert (code, err) == (2, "error: log.txt: a log of inspect_ai ends in .eval or .json\n")
    monkeypatch.setitem(__import__("sys").modules, "inspect_ai.log", None)
    code, _, err = smopd("eval", "inspect", str(finished), "log.eval")
    assert code == 2
    assert "pip install 'smopd[inspect]'" in err

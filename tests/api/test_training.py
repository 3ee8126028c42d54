"""`smopd.train`: the run it makes is one of the loop's, goes on, and is honest about what was passed."""

import logging
from dataclasses import replace

import pytest
import torch
from support.apples import EXAMPLES, SMALL, last_number
from support.runs import complaint, flat, metrics
from transformers import AutoModelForCausalLM, AutoTokenizer

import smopd
from smopd.config import load_config
from smopd.data.check import GARBAGE
from smopd.methods import METHODS, Method
from smopd.pocket import MODEL_DIR

QUIET = {"progress": False}
SURE = 0.5


def train(out, *, verifier=last_number, examples=EXAMPLES, steps=2, **more):
    more = {"settings": SMALL, "out": out, **QUIET} | more
    return smopd.train("pocket", train=examples, verifier=verifier, steps=steps, **more)


def test_the_folder_holds_what_was_passed(apples, smopd, monkeypatch):
    folder = apples.path
    config = load_config(folder / "config.toml")
    assert config.train.steps == 2
    assert config.data.verifiers == [str(folder / "inputs" / "verifier.py")]
    assert len((folder / "inputs" / "train.jsonl").read_text().splitlines()) == 4
    assert "def last_number(answer, reply):" in (folder / "inputs" / "verifier.py").read_text()
    # So the command line goes on with it, without any Python object.
    code, _, err = smopd("eval", str(folder), "--views", "full", "--out", "ev")
    assert code == 0, err


def test_the_same_call_reads_a_finished_run_and_another_one_is_refused(apples):
    again = train(apples.path, eval=EXAMPLES[:2], settings=SMALL | {"train.save_tokens": True})
    assert metrics(again.path) == metrics(apples.path)
    message = complaint(apples.path, verifier=lambda answer, reply: True, call=train)
    assert "verifier.py: what is passed now is not what this folder was begun with" in message
    assert "train.jsonl: what is passed now" in complaint(apples.path, examples=EXAMPLES[:3], call=train)
    assert "def last_number" in (apples.path / "inputs" / "verifier.py").read_text()


def test_a_run_stopped_by_on_step_goes_on_as_if_undisturbed(apples, tmp_path):
    seen = []

    def first_only(row):
        seen.append(row["step"])
        return False

    half = train(tmp_path / "half", eval=EXAMPLES[:2], on_step=first_only)
    assert (seen, len(metrics(half.path))) == ([1], 1)
    whole = smopd.train(half, **QUIET)  # the folder is enough
    assert metrics(whole.path) == metrics(apples.path)
    assert "is a run, which resumes in its own folder" in complaint(
        half, out=tmp_path / "other", call=smopd.train
    )


def test_a_verifier_without_a_text_is_called_here_and_the_command_line_refuses(tmp_path, caplog, smopd):
    class Judge:
        calls = 0

        def right(self, answer, reply):
            self.calls += 1
            answers.append(answer)
            return reply == str(answer)

    answers: list[object] = []
    judge = Judge()
    with caplog.at_level(logging.WARNING, "smopd"):
        run = train(tmp_path / "run", verifier=judge.right, steps=1, eval=EXAMPLES[:1])
        assert "it is called in this process, one reply at a time, without a limit" in caplog.text
        tried = 2 + len(GARBAGE)  # before training, on two forms of the reference and on garbage
        assert judge.calls == tried + 2
        caplog.clear()
        train(tmp_path / "run", verifier=judge.right, steps=1, eval=EXAMPLES[:1])
        assert "it cannot be told whether it is the one this run began with" in caplog.text
    from smopd import evaluate
    from smopd.verify import custom

    evaluate(run, verifier=judge.right, views=["full"], progress=False)  # on what the folder keeps
    assert len(answers) == 2 * tried + 3  # a run that goes on tries it again
    assert all(isinstance(answer, int) for answer in answers)  # as they were passed
    custom._here.clear()  # as in another process
    code, _, err = smopd("eval", str(run.path))
    assert code == 2
    assert "pass it again as verifier=" in err


def test_a_mistake_leaves_no_folder_and_reads_as_on_the_command_line(tmp_path):
    out = tmp_path / "deep" / "run"
    assert complaint(out, settings={"lora.rr": 8}, call=train) == complaint("pocket", ["lora.rr=8"])
    assert "lr is optim.lr here: pass **{'optim.lr': 1}" in complaint(out, **{"lr": 1}, call=train)
    assert "lora.r: expected a number, a text" in complaint(out, settings={"lora.r": object()}, call=train)
    assert "no such recipe or file" in complaint("pokcet", call=smopd.train)
    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR)
    assert "needs its tokenizer" in complaint(model, call=smopd.train)
    assert "found int" in complaint(3, call=smopd.train)
    assert "model.path" in complaint(out, settings={"model.path": str(tmp_path / "none")}, call=train)
    assert not (tmp_path / "deep").exists()


def test_a_model_in_memory_trains_as_its_folder_does(apples, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_DIR)
    other = ("data.", "method", "model.path", "model.dtype")
    wanted = {key: value for key, value in flat(apples.config).items() if not key.startswith(other)}
    how = {"tokenizer": tokenizer, "train": EXAMPLES, "verifier": last_number, "settings": wanted, **QUIET}
    run = smopd.train(model, out=tmp_path / "run", **how)
    assert metrics(run.path) == metrics(apples.path)
    assert run.config.model.path == str(tmp_path / "run" / "inputs" / "model")
    next(model.parameters()).data.add_(1)
    message = complaint(model, out=tmp_path / "run", **how, call=smopd.train)
    assert "model.sha256: what is passed now is not what this folder was begun with" in message


def test_a_divergence_and_a_selector_are_plain_functions(tmp_path, smopd):
    import smopd as door

    def total_variation(rows):
        return 0.5 * (rows.student.softmax(-1) - rows.teacher.softmax(-1)).abs().sum(-1)

    def teacher_is_sure(tokens):
        return tokens.teacher_entropy <= SURE

    method = door.variant("entropy", loss=total_variation, tokens=teacher_is_sure, terms=["middle"])
    run = train(tmp_path / "run", method=method)
    for row in metrics(run.path):
        assert 0 < row["divergence/middle"] < 1  # total variation is at most 1
        assert row["kept"] < 1
    text = (run.path / "inputs" / "method.py").read_text()
    assert "def total_variation(rows):" in text
    assert "SURE = 0.5" in text
    code, out, err = smopd("train", str(run.path / "config.toml"), "--dry-run")
    assert code == 0, err
    assert "total_variation" in out
    changed = door.variant("entropy", loss=total_variation, terms=["middle"])
    assert "method.py: what is passed now" in complaint(run.path, method=changed, call=train)
    assert "no term 'muddle'" in complaint(
        tmp_path / "x", method=door.variant("entropy", loss=total_variation, terms=["muddle"]), call=train
    )


def test_a_method_without_a_text_trains_in_this_process_alone(tmp_path):
    base = METHODS["entropy"]

    class Planner:
        def plan(self, settings):
            base_plan = base.plan(settings)
            return replace(base_plan, terms=base_plan.terms[:1])

    method = Method("bound", "Bound", "A bound method.", "ours", base.section, Planner().plan)
    run = train(tmp_path / "run", method=method, steps=1)
    assert "loss/answer" not in metrics(run.path)[0]
    from smopd import plugins

    plugins._loaded.clear()
    assert "pass it again as method=" in complaint(run, call=smopd.train, **QUIET)


def test_the_default_folder_tells_runs_apart(tmp_path, monkeypatch):
    from smopd.api.training import TrainingCall

    monkeypatch.chdir(tmp_path)

    def folder(**how):
        call = TrainingCall("pocket", how.pop("method", None), None, how, None)
        return str(call.folder(call.config(trial=True)))

    assert folder() == folder(**{"train.steps": 3}) == "runs/pocket-entropy-seed42"
    assert folder(**{"seed": 7, "method": "baseline"}) == "runs/pocket-baseline-seed7"
    assert folder(**{"lora.r": 8}).startswith("runs/pocket-entropy-seed42-")
    assert folder(**{"lora.r": 8}) != folder(**{"lora.r": 4})


@pytest.mark.parametrize("form", ["datasets", "files"])
def test_examples_of_other_forms(tmp_path, form, apples):
    if form == "datasets":
        examples = pytest.importorskip("datasets").Dataset.from_list(EXAMPLES)
    else:
        examples = tmp_path / "train.jsonl"
        examples.write_text((apples.path / "inputs" / "train.jsonl").read_text())
    from smopd.api.inputs import judged_examples

    if form == "files":  # a file names its task, which no verifier of this process has
        examples_by_split, _ = judged_examples({"train": str(examples)}, last_number)
    else:
        examples_by_split, _ = judged_examples({"train": examples}, last_number)
    assert [e.answer for e in examples_by_split["train"]] == [{"value": n} for n in (6, 5, 4, 3)]

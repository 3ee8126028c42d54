"""The command line as a user meets it: one JSON object with --json, exit code 2 and a plain message for bad
input.
"""

import json
import logging
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from random import Random

import pytest
from conftest import shared
from support.fuzzed import make_adapter, make_run
from support.runs import set_words

from smopd.config import load_config, to_toml
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.evaluation.tokens import read
from smopd.training.runs import LOGGED

FAST = ["--set", "train.steps=2", "--set", "train.rollouts=2", "--set", "train.micro_batch=2"]


VERBS = ["quickstart", "train", "eval", "eval compare", "export", "plan", "report", "methods", "methods show",
         "data pocket", "data check", "data build", "data stats", "data shard", "study", "study list",
         "study power", "study calibration", "study gradients", "chat"]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(smopd, verb):
    code, out, _ = smopd(*verb.split(), "--help")
    assert code == 0
    assert f"smopd {verb}" in out.split("Example")[1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "pocket", "--set", "optim.learning_rate=1"], "did you mean 'optim.lr'?"),
        (["train", "pocket", "--set", "optim.lr=fast"], "optim.lr"),
        (["train", "pocket", "--method", "entorpy"], "did you mean 'entropy'?"),
        (["train", "nosuch"], "nosuch: no such recipe or file"),
        (["train", "broken.toml"], "broken.toml: not valid TOML"),
        (["train", "pocket", "--set", "model.path=./nosuch"], "model.path: ./nosuch: no such model folder"),
        (["train", "pocket", "--set", "model.path=empty"], "model.path"),
        (["train", "pocket", "--set", "data.train=nosuch.jsonl"], "nosuch.jsonl: no such data file"),
        (["train", "pocket", "--set", "data.train=bad.jsonl"], "bad.jsonl, line 2: not valid JSON"),
        (["train", "pocket", "--set", "data.train=noshards.jsonl"], "noshards.jsonl, line 1, field 'shards'"),
        (["train", "pocket", "--out", "empty"], "not a run folder"),
        (["train", "pocket", "--set", "model.adapter=empty"], "empty: neither a PEFT adapter"),
        (["eval", "./nosuch"], "no such model folder"),
        (["eval", "pocket", "--adapter", "empty"], "empty: neither a PEFT adapter"),
        (["eval", "pocket", "--views", "half"], "eval.views"),
        (["eval", "pocket", "--out", "empty"], "exists and is not empty"),
        (["eval", "pocket", "--data", "bad.jsonl"], "bad.jsonl, line 2"),
        (["report", "empty"], "empty: not a run folder"),
        (["report", "empty", "--audit"], "empty: neither a run folder"),
        (["report", "bad.jsonl"], "bad.jsonl: not valid JSON"),
        (["report", "empty", "--out", "x"], "--out"),
        (["study", "nosuch"], "nosuch: no such study or file"),
        (["study", "broken.toml"], "broken.toml: not valid TOML"),
        (["study", "miniature", "--set", "train.step=3"], "did you mean 'train.steps'?"),
        (["study", "paper-ablation"], "data.train = train.jsonl: no such file"),
        (["study", "calibration", "empty"], "empty: not a run folder"),
        (["study", "gradients", "empty"], "empty: not a run folder"),
        (["eval", "pocket", "--no-base"], "--no-base: pocket is no run folder"),
        (["data", "check", "bad.jsonl"], "bad.jsonl, line 2"),
        (["data", "pocket", "bad.jsonl"], "bad.jsonl: exists; nothing was written"),
        (["data", "pocket", "x.jsonl", "--split", "test"], "--split"),
    ],
)
def test_bad_input_is_a_message_exit_2_and_nothing_overwritten(smopd, tmp_path, args, message):
    good = load_examples("pocket:train:1")[0].to_json()
    (tmp_path / "broken.toml").write_text("method = \n")
    (tmp_path / "bad.jsonl").write_text(json.dumps(good) + "\n{oops\n")
    (tmp_path / "noshards.jsonl").write_text(json.dumps(good | {"shards": []}) + "\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "keep.txt").write_text("mine")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    code, out, err = smopd(*args)
    assert code == 2, err
    assert message in err
    assert out == ""
    assert "Traceback" not in err
    assert all(p.read_bytes() == content for p, content in before.items())


def test_a_failed_start_leaves_no_run_folder_behind_that_blocks_the_next(smopd, tmp_path):
    assert smopd("train", "pocket", "--out", "r", "--set", "data.train=nosuch.jsonl", *FAST)[0] == 2
    assert not (tmp_path / "r").exists()


def test_dry_run_prints_a_recipe_that_loads_again(smopd, tmp_path):
    code, out, _ = smopd("train", "qwen3-4b", "--method", "combined", "--set", "seed=7", "--dry-run")
    assert code == 0
    Path("again.toml").write_text(out)
    assert smopd("train", "again.toml", "--dry-run")[1] == out
    assert "keep = 0.8\neta = 0.2" in out
    assert "seed = 7" in out
    assert [p.name for p in tmp_path.iterdir()] == ["again.toml"]


def test_train_eval_report_round_trip(smopd, tmp_path):
    code, out, err = smopd("train", "pocket", "--out", "r", "--json", *FAST)
    assert code == 0, err
    trained = json.loads(out)
    assert trained["checkpoint"] == "r/checkpoints/step-000002"
    assert trained["last"]["step"] == 2
    code, out, err = smopd("eval", "r", "--limit", "6", "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert summary["views"]["full"]["total"] == summary["views"]["sharded"]["total"] == 6
    assert summary["adapter"] == trained["checkpoint"]
    assert Path(summary["folder"]).match("r/eval/step-000002-pocket-eval-*")
    assert (tmp_path / summary["folder"] / "conversations.jsonl").exists()
    assert Path(summary["base"]["folder"]).match("r/eval/base-pocket-eval-*")
    assert summary["base"]["views"].keys() == summary["change"].keys() == {"full", "sharded"}
    again = json.loads(smopd("eval", "pocket", "--adapter", "r", "--limit", "6", "--json")[1])
    assert again["views"] == summary["views"]
    same = json.loads(smopd("eval", "r/checkpoints/step-000002", "--limit", "6", "--json")[1])
    assert (same["folder"], same["base"]) == (summary["folder"], summary["base"])
    shutil.copytree(tmp_path / "r/checkpoints/step-000002", tmp_path / "alone")
    code, _, err = smopd("eval", "alone", "--limit", "6")
    assert (code, "give its model, and with it --adapter alone" in err) == (2, True)
    code, _, err = smopd("eval", "alone", "--adapter", "r")
    assert (code, "give its model, and with it --adapter alone" in err) == (2, True)
    code, _, err = smopd("eval", "r/checkpoints/step-000002", "--adapter", "r")
    assert (code, "--adapter: r/checkpoints/step-000002 is an adapter itself" in err) == (2, True)
    one = json.loads(smopd("eval", "pocket", "--limit", "3", "--views", "sharded", "--json")[1])
    assert list(one["views"]) == ["sharded"]
    base = json.loads(smopd("eval", "r/config.toml", "--limit", "6", "--json")[1])
    assert base["adapter"] is None
    assert base["views"] == summary["base"]["views"]
    assert json.loads(smopd("report", "r", "--json")[1]) == {"report": "r/report.html", "missing": []}
    code, _, err = smopd("train", "pocket", "--out", "r", "--set", "seed=1", *FAST)
    assert code == 2
    assert "seed: 42 in the run folder, 1 now" in err


def test_eval_prints_a_table(smopd):
    code, out, _ = smopd("eval", "pocket", "--limit", "4")
    assert code == 0
    assert "FULL against SHARDED" in out
    assert "at any turn" in out


def test_the_teacher_answers_beside_the_student(smopd):
    args = ("eval", "pocket", "--data", "everyday@bill:eval:2", "--views", "sharded,teacher",
             *set_words(["eval.tokens=8", "eval.middle_tokens=8", "eval.clean=goal-last"]))  # fmt: skip
    code, out, err = smopd(*args)
    assert code == 0, err
    for shown in (
        "TEACHER",
        "turn accuracy",
        "SHARDED against TEACHER",
        "the model itself",
        "the first of them last",
    ):
        assert shown in " ".join(out.split())
    summary = json.loads(smopd(*args, "--json")[1])
    assert summary["teacher"] == {"weights": "model", "clean": "goal-last"}
    assert "middle_turns" in summary["views"]["teacher"]


def test_a_verifier_that_fails_is_no_bad_model(smopd, tmp_path):
    (tmp_path / "own.py").write_text(
        "from smopd.verify import verifier\n\n\n@verifier('broken')\n"
        "def broken(answer, reply):\n    return oops\n"
    )
    row = {"id": "a", "task": "broken", "system": "s", "shards": ["How?", "So."], "full": "How? So."}
    (tmp_path / "d.jsonl").write_text(json.dumps(row | {"answer": {"value": "x"}}) + "\n")
    verifiers_option = ("--verifiers", "own.py")
    message = "NameError: name 'oops' is not defined (own.py, line 6: return oops)"
    code, _, err = smopd("data", "check", "d.jsonl", *verifiers_option)
    assert code == 2
    assert "task 'broken': the verifier failed on every one of 5 replies" in err
    assert message in err
    code, out, err = smopd("eval", "pocket", "--data", "d.jsonl", *verifiers_option, "--set", "eval.tokens=4")
    assert code == 0, err
    assert message in " ".join(out.split())
    assert "FULL: counted as not correct: 1 error" in out
    # A second process has a log of its own: the first failure is told there too.
    training = ("train", "pocket", "--out", "r", *FAST, "--set", "data.train=d.jsonl", "--set",
                'data.verifiers=["own.py"]', "--set", "objective.eta=0.2")  # fmt: skip
    code, out, err = smopd(*training)
    assert code == 2
    assert "task 'broken': the verifier failed on every one of 5 replies" in err
    assert not (tmp_path / "r").exists()
    # One that fails on some replies only does not stop training; that it does is told.
    (tmp_path / "own.py").write_text(
        "from smopd.verify import verifier\n\n\n@verifier('broken')\n"
        "def broken(answer, reply):\n    return False if reply in ('', answer['value']) else oops\n"
    )
    code, out, err = smopd(*training)
    assert code == 0, err
    assert "replies in training that counted as not correct: 4 error" in out


def test_the_rule_is_a_setting_and_is_named_in_the_result(smopd):
    named = []
    for rule in ("reader", "strict"):
        args = ("eval", "pocket", "--limit", "2", "--set", f"rules.math={rule}")
        summary = json.loads(smopd(*args, "--json")[1])
        named.append(summary["rules"]["math"])
        assert f"math {rule}" in smopd(*args)[1]
        identity = json.loads((Path(summary["folder"]) / "evaluation.json").read_text())
        assert identity["rules"]["math"] == rule
    assert named == ["reader", "strict"]
    code, _, err = smopd("eval", "pocket", "--set", "rules.math=lenient")
    assert code == 2
    assert "rules.math" in err


def test_data_verbs(smopd):
    summary = json.loads(smopd("data", "pocket", "d.jsonl", "--count", "5", "--split", "eval", "--json")[1])
    assert summary["examples"] == 5
    assert load_examples("d.jsonl") == load_examples("pocket:eval:5")
    report = json.loads(smopd("data", "check", "d.jsonl", "--json")[1])
    assert report["examples"] == 5
    assert sum(report["shards"].values()) == 5


def test_methods(smopd):
    assert set(json.loads(smopd("methods", "--json")[1])) >= {"baseline", "entropy", "outcome", "combined"}
    listed = smopd("methods")[1]
    assert all(len(line) <= 80 for line in listed.splitlines())
    assert listed.index("This paper") < listed.index("entropy") < listed.index("Ours")
    shown = smopd("methods", "show", "entropy")[1]
    assert "objective.keep = 0.8" in shown
    assert "tokens sampled: 1.00 times" in shown
    facts = json.loads(smopd("methods", "show", "maigo", "--json")[1])
    assert (facts["group"], facts["objective"]["objective.rho"]) == ("compared", 0.2)
    code, _, err = smopd("methods", "show", "nothing")
    assert code == 2
    assert "unknown method 'nothing'" in err


def test_version(smopd):
    assert smopd("--version")[:2] == (0, f"{version('smopd')}\n")


@pytest.mark.slow
def test_quickstart_small(smopd, tmp_path):
    """The whole job on few examples; twice, since the second must only show what is there."""
    args = ["quickstart", "--out", "q", "--set", "data.eval=pocket:eval:12", *FAST]
    code, out, err = smopd(*args)
    assert code == 0, err
    assert str((tmp_path / "q" / "report.html").resolve()) in out.replace("\n", "")
    assert "smopd train qwen3-1.7b" in out
    page = (tmp_path / "q" / "report.html").read_text()
    assert page.count("SHARDED") > 3
    logged = [read(file).ids for file in (tmp_path / "q").glob("eval/*/tokens/*.safetensors")]
    assert [len(ids) for ids in logged] == [LOGGED] * 4  # FULL and SHARDED, before and after
    code, out, err = smopd(*args, "--json")
    assert code == 0, err
    shown = json.loads(out)
    assert shown["base"]["views"]["sharded"]["total"] == 12
    assert {c["label"] for c in shown["comparisons"]} == {
        "FULL: base against trained",
        "SHARDED: base against trained",
    }
    assert len((tmp_path / "q" / "metrics.jsonl").read_text().splitlines()) == 2
    assert smopd("report", "q", "--audit")[0] == 0
    summary = tmp_path / "q" / "eval" / "trained" / "summary.json"
    stored = json.loads(summary.read_text())
    stored["views"]["sharded"]["correct"] += 1
    summary.write_text(json.dumps(stored))
    code, out, _ = smopd("report", "q", "--audit")
    assert code == 1
    assert "views.sharded.correct" in out
    assert "report.html" in out


def test_power_of_a_design(smopd):
    args = ("study", "power", "--items", "200", "--seeds", "3", "--seed-sd", "0.6")
    code, out, _ = smopd(*args)
    assert code == 0
    assert out.startswith("With 200 items and 3 seeds an arm you can detect ")
    points = json.loads(smopd(*args, "--json")[1])["points"]
    assert points < json.loads(smopd(*args, "--json", "--seed-sd", "2")[1])["points"]
    assert points > json.loads(smopd(*args, "--json", "--items", "800")[1])["points"]


@pytest.mark.parametrize("task", ["database", "code"])
def test_every_scored_task_can_be_evaluated(smopd, task):
    data = shared(f"data/lic/{task}.json")
    settings = ["--set", "eval.tokens=8", "--set", "eval.middle_tokens=4", "--set", "eval.batch=2"]
    code, out, err = smopd("eval", "pocket", "--data", str(data), "--limit", "2", "--json", *settings)
    assert code == 0, err
    for view in json.loads(out)["views"].values():
        assert view["total"] == 2
        assert list(view["by_task"]) == [task]
        assert sum(view["status"].values()) == 2


def test_a_task_without_a_verifier_is_refused_before_anything_is_loaded(smopd):
    code, _, err = smopd("eval", "pocket", "--data", str(shared("data/lic/summary.json")))
    assert code == 2
    assert "task 'summary' cannot be scored" in err


@pytest.mark.slow
def test_an_evaluation_killed_again_and_again_gives_the_numbers_of_an_undisturbed_one(
    smopd, smopd_process, tmp_path, caplog
):
    """kill -9, at random instants, of the command line itself."""
    args = ["eval", "pocket", "--data", "pocket:eval:6", "--set", "eval.batch=1"]
    file = tmp_path / "part" / "conversations.jsonl"
    draw = Random(7)
    for _ in range(2):
        before = file.stat().st_size if file.exists() else 0
        process = smopd_process(*args, "--out", "part")
        while process.poll() is None and (file.stat().st_size if file.exists() else 0) <= before:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.2))
        process.kill()
        process.communicate()
        assert process.returncode == -9, "it ended before it was killed"
    for name in ("part", "whole"):
        caplog.clear()
        with caplog.at_level(logging.INFO, "smopd"):
            code, _, err = smopd(*args, "--out", name)
        assert code == 0, err
        assert ("continuing part after" in caplog.text) == (name == "part")
    for name in ("summary.json", "conversations.jsonl"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


SHORT = ("--set", "rollout.answer_tokens=8", "--set", "rollout.middle_tokens=8", "--set", "eval.tokens=8",
         "--set", "data.eval=pocket:eval:3")  # fmt: skip


def test_a_run_folder_is_enough_to_go_on_and_to_compare(smopd, tmp_path):
    for name, seed in (("one", 1), ("two", 2)):
        args = ("train", "pocket", "--out", name, *FAST, *SHORT, "--set", f"seed={seed}")
        assert smopd(*args)[0] == 0
    code, out, err = smopd("train", "one", "--set", "train.steps=3")  # lengthened
    assert code == 0, err
    assert "step-000003" in out
    assert [json.loads(line)["step"] for line in (tmp_path / "one/metrics.jsonl").open()] == [1, 2, 3]
    code, out, err = smopd("train", "one", "--out", "three", "--set", "train.steps=1")
    assert code == 0, err
    assert len((tmp_path / "three/metrics.jsonl").read_text().splitlines()) == 1

    assert (
        "no examples were evaluated with both; run smopd eval one --data DATA and smopd eval two"
        in smopd("eval", "compare", "one", "two")[2]
    )
    assert smopd("eval", "one", "--data", "pocket:eval:4")[0] == 0  # two has no such evaluation
    for name in ("one", "two"):
        assert smopd("eval", name, "--out", f"{name}-eval")[0] == 0
    code, out, err = smopd("eval", "compare", "one", "two", "--json")
    assert code == 0, err
    comparison = json.loads(out)
    assert [Path(comparison[side]).resolve().name for side in "ab"] == ["one-eval", "two-eval"]
    assert comparison["views"]["full"]["change"]["n"] == 3
    mixed = json.loads(smopd("eval", "compare", "one-eval", "two", "--json")[1])
    assert mixed["views"] == comparison["views"]
    against_base = json.loads(smopd("eval", "compare", "two", "two", "--json")[1])
    assert "/base-" in against_base["a"]
    assert Path(against_base["b"]).resolve().name == "two-eval"
    from smopd import Run

    change = Run("two").compare(Run("one"))
    assert (change["a"], change["b"]) == (comparison["a"], comparison["b"])
    with pytest.raises(UserError, match=r"^three and two: no examples were evaluated with both"):
        Run("two").compare("three")


def test_a_dry_run_refuses_what_training_would(smopd, tmp_path):
    dry = ("train", "pocket", "--dry-run", "--set")
    for setting, message in (
        ("lora.targets=q_prj", "lora.targets: this model has no layer named q_prj"),
        ("model.quantize=nf4", "model.quantize: nf4 needs a GPU"),
        ("train.teacher_every=1", "train.teacher_every: no task of pocket:train knows"),
        ("engine.kind=openai", "engine.kind: openai is for evaluation only"),
    ):
        for args in (dry, ("train", "pocket", "--set")):
            code, _, err = smopd(*args, setting)
            assert code == 2
            assert message in err
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert "bad.jsonl, line 1" in smopd(*dry, "data.train=bad.jsonl")[2]
    # What is not here yet is told and passed over: settings are often checked on another machine.
    code, out, err = smopd("train", "qwen3-1.7b", "--dry-run")
    assert code == 0, err
    assert "# model.path: Qwen/Qwen3-1.7B is not on this machine: not checked" in out
    assert "# data.train: train.jsonl is not on this machine: not checked" in out


def test_a_dry_run_refuses_what_shows_before_the_first_step(smopd, tmp_path, monkeypatch):
    make_run(tmp_path / "run", to_toml(load_config("pocket")))
    make_adapter(tmp_path / "adapter")
    row = load_examples("pocket:train:1")[0].to_json()
    (tmp_path / "long.jsonl").write_text(json.dumps(row | {"id": "endless", "shards": row["shards"] * 200}))
    (tmp_path / "own.jsonl").write_text(json.dumps(row | {"task": "own"}))
    (tmp_path / "own.py").write_text(
        "from smopd.verify import verifier\n\n\n@verifier('own')\ndef own(answer, reply):\n    return oops\n"
    )
    for words, message in (
        ("train run --set seed=1", "seed: 42 in the run folder, 1 now"),
        ("train pocket --set model.adapter=adapter", "adapter: does not fit this model"),
        ("train pocket --set data.train=long.jsonl", "example 'endless', turn "),
        (
            "train pocket --set data.train=own.jsonl --set data.verifiers=own.py",
            "the verifier failed on every",
        ),
    ):
        for dry in ([], ["--dry-run"]):
            code, out, err = smopd(*words.split(), *dry)
            assert (code, out) == (2, ""), words
            assert message in err
    for module in ("training.check", "rollout.engine"):
        monkeypatch.setattr(f"smopd.{module}.find_spec", lambda name: None)
    for key, name in (("engine.kind", "vllm"), ("train.trackers", "wandb")):
        code, _, err = smopd("train", "pocket", "--set", f"{key}={name}")
        assert (code, f"error: {key}: {name} is not installed: pip install" in err) == (2, True)
    # An engine is told and passed over, as the model is: the machine that trains may have it.
    code, out, err = smopd("train", "pocket", "--dry-run", "--set", "engine.kind=vllm")
    assert code == 0, err
    assert "# engine.kind: vllm is not on this machine: not checked" in out


def test_help_shows_no_type_behind_a_flag(smopd):
    for verb in ("train", "eval", "report", "export"):
        assert "<bool>" not in smopd(verb, "--help")[1]


def test_two_evaluations_are_compared(smopd):
    for name, more in (("a", ()), ("b", ("--set", "eval.temperature=1.0")), ("c", ("--views", "concat"))):
        assert smopd("eval", "pocket", "--limit", "6", "--out", name, *more)[0] == 0
    code, out, err = smopd("eval", "compare", "a", "b", "--json")
    assert code == 0
    assert "eval.temperature is not the same in both" in err
    comparison = json.loads(out)
    a, b = (json.loads(Path(name, "summary.json").read_text()) for name in "ab")
    for view in ("full", "sharded"):
        change = comparison["views"][view]["change"]
        assert change["n"] == 6
        assert change["difference"] == pytest.approx(
            b["views"][view]["accuracy"] - a["views"][view]["accuracy"]
        )
    assert "B: b" in smopd("eval", "compare", "a", "b")[1]
    assert smopd("eval", "compare", "a", "c")[0] == 2
    assert "no view was played in both" in smopd("eval", "compare", "a", "c")[2]
    assert "is no evaluation" in smopd("eval", "compare", "a", "nowhere")[2]


def test_a_finished_evaluation_is_read_not_played_and_another_is_refused(smopd):
    args = ("eval", "pocket", "--limit", "4", "--views", "full", "--json")
    code, out, err = smopd(*args)
    assert code == 0
    folder = json.loads(out)["folder"]
    assert folder.startswith("runs/eval-pocket-pocket-eval-")
    again = smopd(*args)
    assert json.loads(again[1]) == json.loads(out)
    assert "was finished before" in again[2]
    assert "loading" not in again[2]
    code, _, err = smopd("eval", "pocket", "--limit", "5", "--views", "full", "--out", folder)
    assert code == 2
    assert "holds an evaluation of something else" in err
    assert "eval" in err


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--runs", "3"), "eval.temperature=1.0"),
        (("--views", "simulated"), "--user-url"),
        (("--user-url", "http://localhost:1"), "add it to --views"),
        (("--set", "prompts.actions=Call."), "prompts.actions: must contain {functions}"),
        (("--verifiers", "nowhere.py"), "nowhere.py"),
        (("--databases", "nowhere"), "nowhere"),
        (("--views", "half"), '"snowball"'),
    ],
)
def test_evaluations_that_cannot_be(smopd, args, complaint):
    code, _, err = smopd("eval", "pocket", "--limit", "3", *args)
    assert code == 2
    assert complaint in err
    assert "Traceback" not in err


def test_a_system_prompt_is_replaced_and_filled(smopd):
    prompt = 'prompts.actions="Only these: {functions}"'
    code, _, err = smopd(
        "eval", "pocket", "--limit", "4", "--views", "full", "--out", "o", "--set", prompt, "--json"
    )
    assert code == 0, err
    rows = [json.loads(line) for line in Path("o/conversations.jsonl").read_text().split("\n") if line]
    system_prompts = {row["task"]: row["system"] for row in rows}
    assert system_prompts["actions"].startswith("Only these: ")
    assert "Only these" not in system_prompts["math"]

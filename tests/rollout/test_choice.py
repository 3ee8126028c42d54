"""What `engine.kind = "auto"` is, on machines of every kind and on this one."""

import logging

import pytest
import torch

from smopd.config import load_config, settings_hash
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.evaluation.session import evaluate_into
from smopd.evaluation.store import load_identity
from smopd.files import read_jsonl
from smopd.machine import engine_facts
from smopd.models.adapters import attach
from smopd.pocket import MODEL_DIR
from smopd.rollout.assembly import evaluation_driver, training_driver
from smopd.rollout.engine import choose_engine, log_once, resolve_engine, with_chosen_engine
from smopd.rollout.hf import HFEngine
from smopd.runs.writer import RunFolder
from smopd.training.runs import train_run

QWEN3 = ["qwen3-1.7b", "qwen3-4b", "qwen3-8b"]
here_hf = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@pytest.fixture(autouse=True)
def not_said_yet():
    log_once.cache_clear()


@pytest.mark.parametrize(
    ("settings", "cuda", "vllm", "processes", "kind", "reason"),
    [
        ([], True, True, 1, "vllm", "CUDA device and vLLM found"),
        ([], False, True, 1, "hf", "no CUDA device"),
        ([], True, False, 1, "hf", "make gpu"),
        ([], True, True, 8, "hf", "8 processes; engine.kind=vllm-http"),
        (["model.quantize=nf4"], True, True, 1, "hf", "quantized"),
        (["model.path=a/b.gguf"], True, True, 1, "hf", "GGUF"),
    ],
)
def test_the_engine_of_a_machine(settings, cuda, vllm, processes, kind, reason):
    config = load_config("qwen3-1.7b", settings)
    chosen, why = choose_engine(config, cuda, vllm, processes)
    assert (chosen, reason in why) == (kind, True)
    assert with_chosen_engine(config, cuda, vllm, processes).engine.kind == kind
    named = load_config("qwen3-1.7b", [*settings, "engine.kind=vllm-http"])
    assert with_chosen_engine(named, cuda, vllm, processes) is named


def test_the_recipes_ask_for_it_and_the_pocket_one_does_not():
    assert {load_config(name).engine.kind for name in QWEN3} == {"auto"}
    assert load_config("pocket").engine.kind == load_config("qwen3-8b-4bit").engine.kind == "hf"


def test_the_launcher_counts_processes(monkeypatch):
    assert engine_facts()[2] == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert engine_facts()[2] == 4


@here_hf
def test_it_is_said_once_and_why(caplog):
    config = load_config("qwen3-1.7b")
    with caplog.at_level(logging.INFO, "smopd"):
        assert resolve_engine(config).engine.kind == resolve_engine(config).engine.kind == "hf"
        resolve_engine(load_config("pocket"))
    assert caplog.messages == ["engine.kind auto: hf (no CUDA device)"]
    assert config.engine.kind == "auto"


@here_hf
def test_both_drivers_get_a_concrete_engine(pocket, tmp_path):
    config = load_config("pocket", ["engine.kind=auto", "lora.r=4"])
    with evaluation_driver(config) as driver:
        assert isinstance(driver.engine, HFEngine)
    model = attach(pocket.model, config.lora, config.seed)
    assert isinstance(training_driver(config, pocket.renderer, model, tmp_path).engine, HFEngine)


@here_hf
def test_a_run_keeps_auto_records_what_it_was_and_goes_on_elsewhere(tmp_path):
    small = [
        "train.rollouts=1",
        "train.checkpoint_every=1",
        "rollout.middle_tokens=4",
        "rollout.answer_tokens=4",
    ]
    auto = load_config("pocket", [*small, "engine.kind=auto", "train.steps=1"])
    train_run(auto, RunFolder(tmp_path / "run", auto))
    assert 'kind = "auto"' in (tmp_path / "run" / "config.toml").read_text()
    (start,) = read_jsonl(tmp_path / "run" / "starts.jsonl")
    assert start["step"] == 0
    assert (start["engine"], start["device"], start["processes"]) == ("hf", "cpu", 1)
    assert torch.__version__.startswith(start["torch"].partition("+")[0])
    # Another machine may choose another engine: no result is said to depend on it.
    elsewhere = with_chosen_engine(auto, True, True, 1)
    assert elsewhere.engine.kind == "vllm"
    assert settings_hash(elsewhere) == settings_hash(auto)
    RunFolder(tmp_path / "run", elsewhere)
    with pytest.raises(UserError, match="another configuration"):
        RunFolder(tmp_path / "run", load_config("pocket", [*small, "train.steps=1", "seed=7"]))


@here_hf
def test_an_evaluation_belongs_to_the_engine_that_played_it(tmp_path):
    settings = ["engine.kind=auto", "eval.tokens=2", "eval.middle_tokens=2", 'eval.views=["full"]']
    config, examples = load_config("pocket", settings), load_examples("pocket:eval:1")
    evaluate_into(tmp_path / "e", config, examples, "test")
    assert load_identity(tmp_path / "e")["engine"] == "hf"
    with pytest.raises(UserError, match='engine: "hf" there, "vllm" now'):
        evaluate_into(tmp_path / "e", with_chosen_engine(config, True, True, 1), examples, "test")


@here_hf
def test_a_bare_model_is_evaluated_by_the_engine_of_its_run(smopd):
    options = ["--data", "pocket:eval:1", "--views", "full", "--set", "eval.tokens=2", "--out", "e", "--json"]
    code, _, err = smopd("eval", str(MODEL_DIR), *options)
    assert code == 0
    assert "engine.kind auto: hf (no CUDA device)" in err
    code, _, err = smopd("eval", "pocket", *options[:-2], "other", "--json")
    assert code == 0
    assert "auto" not in err


@here_hf
def test_a_dry_run_says_it_too(smopd):
    assert "# engine.kind auto: hf (no CUDA device)\n" in smopd("train", "qwen3-1.7b", "--dry-run")[1]
    assert "engine.kind auto" not in smopd("train", "pocket", "--dry-run")[1]

"""Model, engine and driver put together from settings."""

import re
import threading
from contextlib import contextmanager

import pytest
import torch
from support.runs import nobody
from support.vllm_stub import start

from smopd.config import load_config
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.models.adapters import attach
from smopd.rollout import Sampling, assembly
from smopd.rollout.assembly import evaluation_driver, evaluation_sampling, make_engine, training_driver
from smopd.rollout.engine import TRAITS
from smopd.rollout.hf import HFEngine
from smopd.rollout.openai import ChatDriver, ChatEndpoint
from smopd.rollout.vllm_http import VLLMServers
from smopd.rollout.vllm_local import VLLMEngine

__all__ = ["start"]  # fixture


@pytest.fixture
def student(pocket):
    config = load_config("pocket", ["lora.r=4", "rollout.temperature=0.7", "rollout.top_k=9"])
    return config, attach(pocket.model, config.lora, config.seed)


@pytest.fixture
def saved(student, tmp_path):
    """An adapter folder of a student that is not its base."""
    _, model = student
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.add_(0.05)
    model.save_pretrained(tmp_path / "adapter", selected_adapters=["default"])
    return tmp_path / "adapter"


def with_engine(config, **engine):
    return config.model_copy(update={"engine": config.engine.model_copy(update=engine)})


def test_engines_say_what_they_can_do():
    engines = {"hf": HFEngine, "vllm": VLLMEngine, "vllm-http": VLLMServers, "openai": ChatEndpoint}
    assert {kind: engine.traits for kind, engine in engines.items()} == TRAITS


def test_training_samples_as_the_settings_say(student, pocket, tmp_path):
    config, model = student
    driver = training_driver(config, pocket.renderer, model, tmp_path)
    rollout = config.rollout
    assert driver.sampling == Sampling(0.7, rollout.answer_tokens, rollout.top_p, 9)
    assert (driver.middle_tokens, driver.history) == (rollout.middle_tokens, config.chat.history)
    assert isinstance(driver.engine, HFEngine)
    assert driver.engine.batch == rollout.batch


def test_engines_elsewhere_get_the_largest_rank(student, pocket, tmp_path, monkeypatch):
    config, model = student
    ranks = []
    monkeypatch.setattr("smopd.rollout.vllm_local.VLLMEngine", lambda *args: ranks.append(args[-1]))
    training_driver(with_engine(config, kind="vllm"), pocket.renderer, model, tmp_path)
    model.peft_config["default"].rank_pattern = {"q_proj": 24}
    training_driver(with_engine(config, kind="vllm"), pocket.renderer, model, tmp_path)
    assert ranks == [4, 24]


def test_training_refuses_an_endpoint(student, pocket, tmp_path):
    config, model = student
    message = r"openai is for evaluation only \(smopd eval\); train with hf, vllm or vllm-http"
    with pytest.raises(UserError, match=message):
        training_driver(with_engine(config, kind="openai"), pocket.renderer, model, tmp_path)


def test_an_evaluation_closes_its_engine_and_says_what_it_waits_for(monkeypatch):
    closed, waited = [], []

    @contextmanager
    def track(what, total=0, done=0, eta=True):
        waited.append(what)
        yield lambda done, note="": None

    monkeypatch.setattr(HFEngine, "close", lambda self: closed.append(self))
    config = load_config("pocket", ["eval.temperature=0.3", "eval.tokens=7", "eval.middle_tokens=3"])
    assert evaluation_sampling(config) == Sampling(0.3, 7)
    with evaluation_driver(config, None, track) as driver:
        assert (driver.sampling, driver.middle_tokens) == (Sampling(0.3, 7), 3)
    assert closed == [driver.engine]
    with pytest.raises(ZeroDivisionError), evaluation_driver(config, None, track):
        raise ZeroDivisionError
    assert len(closed) == 2
    assert waited == ["loading pocket"] * 2


def test_an_adapter_plays_the_same_merged_and_beside(saved):
    texts = []
    for merge in (False, True):
        config = load_config("pocket", [f"rollout.merge={str(merge).lower()}", "eval.tokens=8"])
        with evaluation_driver(config, saved) as driver:
            played = driver.play(load_examples("pocket:eval:3"), "full", (1,))
        texts.append([c.final_text for c in played])
    with evaluation_driver(config) as driver:
        base = [c.final_text for c in driver.play(load_examples("pocket:eval:3"), "full", (1,))]
    assert texts[0] == texts[1] != base


def test_an_engine_elsewhere_needs_no_weights_here(start, saved, monkeypatch):
    stub = start(lambda path, body: (404, b"off") if path == "/tokenize" else None)
    stub.answer_of = stub.answer

    def answer(path, body):
        if path == "/v1/load_lora_adapter" and body:
            stub.loads.append(body["lora_name"])
            return b"Success"
        return stub.answer_of(path, body)

    stub.answer = answer
    monkeypatch.setattr(assembly, "load_model", lambda *_: pytest.fail("loads the model"))
    config = with_engine(load_config("pocket", []), kind="vllm-http", servers=[stub.url])
    before = set(threading.enumerate())
    with evaluation_driver(config, saved) as driver:
        assert isinstance(driver.engine, VLLMServers)
        assert driver.engine._rank == 8  # the smallest that vLLM has for an adapter of rank 4
    assert len(stub.loads) == len(stub.unloads) == 1
    assert {t for t in threading.enumerate() if "process_request" not in t.name} <= before


def test_an_endpoint_takes_no_adapter(saved):
    config = with_engine(load_config("pocket", []), kind="openai", servers=[nobody()])
    with evaluation_driver(config) as driver:
        assert isinstance(driver, ChatDriver)
    with pytest.raises(UserError, match="load the adapter there"), evaluation_driver(config, saved):
        pass


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "raise KeyError('port')",
            ":7, make_engine of {0}: KeyError: 'port'\n  {0}:7, in make_engine: raise",
        ),
        ("pass", ":6, make_engine of {0}: returned None, expected an engine, with a method generate"),
    ],
)
def test_an_engine_file_that_fails_is_named_with_its_line(body, says, tmp_path):
    file = tmp_path / "my_engine.py"
    imports = "from smopd.rollout.engine import Traits\n\nTRAITS = Traits(in_place=True)\n\n\n"
    file.write_text(f"{imports}def make_engine(settings, renderer, model):\n    {body}\n")
    config = load_config("pocket", [f"engine.kind={file}"])
    with pytest.raises(UserError, match=re.escape(f"{file}{says.format(file)}")):
        make_engine(config, None, 1, tmp_path)

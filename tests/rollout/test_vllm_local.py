"""The engine of vLLM in this process, with a stand-in for vLLM: what it is told and when. Real vLLM is in
tests/vllm.
"""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from peft import LoraConfig
from support.played import student_of

from smopd.config import load_config
from smopd.errors import UserError
from smopd.models.adapter_files import largest_rank
from smopd.models.adapters import StudentAdapter
from smopd.rollout.engine import Sampling, Stop
from smopd.rollout.vllm_local import VLLMEngine
from smopd.rollout.vllm_shared import max_rank, read_arguments
from smopd.settings import PROJECTIONS

END = 1


class Refusal(Exception):
    """Stands for VLLMError."""


@pytest.fixture
def vllm(monkeypatch):
    """A package in vLLM's place. `told` lists the calls; `on_cpu`, `broken` and `refuses` change what it
    does.
    """
    stand_in = SimpleNamespace(
        told=[], on_cpu=False, broken=None, refuses=None, settings={}, params=[], asleep=False, worker=None
    )
    tell = stand_in.told.append

    def add_lora(request):
        tell(
            (
                "add",
                request.name,
                request.lora_int_id,
                sorted(path.name for path in Path(request.path).iterdir()),
            )
        )
        if stand_in.refuses:
            raise stand_in.refuses

    class LLM:
        def __init__(self, **settings):
            stand_in.settings = settings
            if stand_in.broken:
                raise stand_in.broken
            os.write(1, b"hello")  # as libraries in C do
            self.asked = []
            self.llm_engine = SimpleNamespace(
                add_request=self.add_request,
                step=self.step,
                add_lora=add_lora,
                remove_lora=lambda number: tell(("remove", number)),
                abort_request=lambda ids, internal: tell(("abort", ids)),
                output_processor=SimpleNamespace(request_states={"r1": 0}),
                engine_core=SimpleNamespace(shutdown=lambda: tell(("shutdown",))),
            )

        def add_request(self, name, prompt, params, lora_request):
            assert not stand_in.asleep
            stand_in.params.append(params)
            tell(("generate", lora_request and lora_request.lora_int_id))
            if stand_in.refuses:
                raise stand_in.refuses
            self.asked.append((name, prompt["prompt_token_ids"]))

        def step(self):
            completion = SimpleNamespace(
                token_ids=[7, END],
                logprobs=[{t: SimpleNamespace(logprob=-0.5)} for t in (7, END)],
                finish_reason="stop",
            )
            name, prompt = self.asked.pop()  # the last one first: replies come in any order
            return [
                SimpleNamespace(
                    request_id=name, prompt_token_ids=prompt, outputs=[completion], num_cached_tokens=1,
                    finished=True,
                )
            ]  # fmt: skip

        def collective_rpc(self, function):
            return [function(stand_in.worker)]

        def sleep(self, level):
            stand_in.asleep = True
            tell(("sleep", level))

        def wake_up(self):
            stand_in.asleep = False
            tell(("wake",))

        def reset_prefix_cache(self):
            tell(("reset",))
            return True

    modules = {
        name: ModuleType(name)
        for name in ("vllm", "vllm.exceptions", "vllm.lora", "vllm.lora.request", "vllm.platforms")
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            setattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    modules["vllm"].LLM, modules["vllm"].SamplingParams = LLM, lambda **fields: fields
    kinds = SimpleNamespace(FINAL_ONLY="final")
    modules["vllm"].sampling_params = SimpleNamespace(RequestOutputKind=kinds)
    modules["vllm.exceptions"].VLLMError = modules["vllm.exceptions"].VLLMClientError = Refusal
    modules["vllm.platforms"].current_platform = SimpleNamespace(is_cpu=lambda: stand_in.on_cpu)
    modules["vllm.lora.request"].LoRARequest = lambda name, number, path: SimpleNamespace(
        name=name, lora_int_id=number, path=path
    )
    return stand_in


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """What the engine sets for vLLM ends with the test."""
    for name in (
        "VLLM_ENABLE_V1_MULTIPROCESSING",
        "VLLM_LOGGING_STREAM",
        "VLLM_LOGGING_LEVEL",
        "VLLM_NO_USAGE_STATS",
    ):
        monkeypatch.setenv(name, "1")


def make(*settings, rank=8) -> VLLMEngine:
    return VLLMEngine(load_config("pocket", ["engine.kind=vllm", *settings]), [END], 1000, rank)


def save(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


def test_settings_reach_vllm(vllm):
    overrides = ("engine.memory=0.4", "engine.max_length=700", "engine.sleep=true", "model.dtype=bfloat16")
    make(*overrides, rank=20)
    settings = vllm.settings
    assert (settings["gpu_memory_utilization"], settings["max_model_len"], settings["dtype"]) == (
        0.4,
        700,
        "bfloat16",
    )
    assert (settings["enable_sleep_mode"], settings["enforce_eager"], settings["enable_prefix_caching"]) == (
        True,
        False,
        True,
    )
    assert (settings["enable_lora"], settings["max_lora_rank"], settings["max_loras"]) == (True, 32, 1)
    assert (settings["logprobs_mode"], settings["generation_config"]) == ("raw_logprobs", "vllm")
    assert Path(settings["model"], "config.json").exists()
    vllm.on_cpu = True
    make("engine.sleep=true", rank=0)
    assert (vllm.settings["enable_sleep_mode"], vllm.settings["enforce_eager"]) == (False, True)
    assert "enable_lora" not in vllm.settings
    assert vllm.settings["max_model_len"] is None


def test_a_swap_is_a_new_name_and_number_and_forgets_the_old(vllm):
    engine = make()
    engine.generate([[5]], [3], Sampling(0.0, 8))
    engine.refresh(1, save)
    engine.generate([[5]], [3], Sampling(0.0, 8))
    first = engine._adapter
    engine.refresh(2, save)
    names = [call[1] for call in vllm.told if call[0] == "add"]
    assert [call[:1] + call[2:] if call[0] == "add" else call for call in vllm.told] == [
        ("generate", None),
        ("add", 1, ["adapter_config.json"]),
        ("reset",),
        ("generate", 1),
        ("remove", 1),
        ("add", 2, ["adapter_config.json"]),
        ("reset",),
    ]
    assert len(set(names)) == 2
    assert not first.exists()
    folder = engine._adapter
    assert folder.exists()
    engine.close()
    engine.close()
    assert vllm.told.count(("shutdown",)) == 1
    assert not folder.parent.exists()


class Reader:
    """Stands for vLLM's LoRAModel, as far as it is asked to read adapters."""

    @classmethod
    def from_lora_tensors(cls, lora_model_id, tensors, peft_helper, device="cuda", dtype=None):
        return sorted(tensors), peft_helper, device

    @classmethod
    def from_local_checkpoint(
        cls, lora_dir, expected_lora_modules, peft_helper, *, lora_model_id=None, device="cuda", dtype=None
    ):
        return sorted(path.name for path in Path(lora_dir).iterdir())


class OtherReader(Reader):
    """Of a vLLM whose reader of tensors wants to know more."""

    @classmethod
    def from_lora_tensors(cls, lora_model_id, tensors, peft_helper, layout, device="cuda", dtype=None):
        raise AssertionError("asked without a layout")


@pytest.fixture
def student(pocket):
    return StudentAdapter(student_of(pocket))


def with_manager(vllm, reader):
    """An engine of a vLLM that has such a reader, and what it does to load an adapter."""
    manager = SimpleNamespace(_lora_model_cls=reader)
    vllm.worker = SimpleNamespace(model_runner=SimpleNamespace(lora_manager=manager))
    engine = make()

    def load(expected=PROJECTIONS):
        options = {"peft_helper": "settings", "lora_model_id": 1, "device": "cpu"}
        return manager._lora_model_cls.from_local_checkpoint(engine._request.path, set(expected), **options)

    return engine, load


def test_a_student_goes_through_memory_where_vllm_takes_tensors(vllm, student):
    engine, load = with_manager(vllm, Reader)
    engine.refresh(1, student)
    assert vllm.told[0][3] == ["adapter_config.json"]
    names, settings, device = load()
    assert names == sorted(student.tensors())
    assert (settings, device) == ("settings", "cpu")
    assert load() == ["adapter_config.json"]  # taken once: the tensors are vLLM's now
    engine.refresh(2, save)  # an adapter that is no student of ours comes as a folder
    assert load() == ["adapter_config.json"]
    assert not engine._handed
    engine.refresh(3, student)
    with pytest.raises(ValueError, match="no adapter on down_proj of this model"):
        load([name for name in PROJECTIONS if name != "down_proj"])
    engine.refresh(4, student)  # never taken
    engine.refresh(5, student)
    assert list(engine._handed) == [engine._request.path]


@pytest.mark.parametrize("reader", [OtherReader, None], ids=["another reader", "no reader"])
def test_a_student_goes_through_a_file_where_it_does_not(vllm, student, reader):
    engine, _ = with_manager(vllm, reader)
    engine.refresh(1, student)
    assert vllm.told[0][3] == ["adapter_config.json", "adapter_model.safetensors"]


def test_it_sleeps_only_if_told_and_wakes_before_it_works(vllm):
    awake = make()
    awake.sleep()
    assert vllm.told == []
    engine = make("engine.sleep=true")
    engine.sleep()
    engine.sleep()
    engine.refresh(1, save)
    assert [call[0] for call in vllm.told] == ["sleep", "wake", "add", "reset"]
    assert vllm.told[0] == ("sleep", 1)
    engine.sleep()
    engine.generate([[5]], [3], Sampling(0.0, 8))
    assert [call[0] for call in vllm.told[4:]] == ["sleep", "wake", "generate"]


def test_a_reply_and_how_it_was_asked_for(vllm, capfd):
    engine = make()
    (reply, _) = engine.generate([[5, 6], [7]], [3, 2**62], Sampling(0.5, 8, top_p=0.9, top_k=20))
    assert (reply.ids, reply.stop, reply.logps) == ((7, END), Stop.END, (-0.5, -0.5))
    asked = vllm.params[1]
    assert (asked["seed"], asked["temperature"], asked["top_p"], asked["top_k"], asked["max_tokens"]) == (
        2**62,
        0.5,
        0.9,
        20,
        8,
    )
    assert (asked["stop_token_ids"], asked["ignore_eos"], asked["logprobs"]) == ([END], True, 0)
    assert (engine.usage.prompt, engine.usage.reused, engine.usage.prefilled) == (3, 2, 1)
    assert engine.generate([], [], Sampling(0.5, 8)) == []
    assert capfd.readouterr() == ("", "hello")


def test_refusals_say_which_setting_to_mend(vllm):
    engine = make()
    vllm.refuses = Refusal("maximum context length is 64")
    with pytest.raises(UserError, match=r"maximum context length is 64\nengine.max_length"):
        engine.generate([[5]], [3], Sampling(0.0, 8))
    assert vllm.told[-1] == ("abort", ["r1"])
    vllm.refuses = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine.generate([[5]], [3], Sampling(0.0, 8))
    assert vllm.told[-1] == ("abort", ["r1"])
    vllm.refuses = ValueError("LoRA rank 64 is greater than max_lora_rank 16.")
    with pytest.raises(UserError, match="rank 64 is greater"):
        engine.refresh(1, save)
    vllm.broken = ValueError("Free memory on device is less than desired")
    with pytest.raises(UserError, match=r"Free memory(.|\n)*engine.memory"):
        make()


def test_without_vllm_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match=r"pip install 'smopd\[vllm\]'"):
        make()


def test_ranks():
    assert [max_rank(r) for r in (1, 2, 8, 9, 64, 300)] == [1, 8, 8, 16, 64, 320]
    with pytest.raises(UserError, match="up to rank 512"):
        max_rank(513)
    adapters = {"default": LoraConfig(r=4, rank_pattern={"q_proj": 24}), "teacher": LoraConfig(r=8)}
    assert largest_rank(SimpleNamespace(peft_config=adapters)) == 24


def test_further_engine_arguments_are_read_and_checked():
    known, ours = {"tensor_parallel_size", "speculative_config", "quantization", "model"}, {"model"}
    words = ["tensor-parallel-size=2", 'speculative_config={"method": "ngram"}', "--quantization=fp8"]
    assert read_arguments(words, known, ours) == {
        "tensor_parallel_size": 2, "speculative_config": {"method": "ngram"}, "quantization": "fp8",
    }  # fmt: skip
    for word, problem in (
        ("tensor_paralel_size=2", "did you mean 'tensor_parallel_size'"),
        ("model=x", "model follows from the other settings"),
        ("quantization", "expected NAME=VALUE"),
    ):
        with pytest.raises(UserError, match=problem):
            read_arguments([word], known, ours)

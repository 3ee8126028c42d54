"""What loading a model tells transformers, and what it refuses."""

import importlib.util

import pytest
import torch
from families import FAMILIES
from transformers import AutoConfig, AutoModelForCausalLM, Phi3Config, Phi3ForCausalLM

from smopd.config import load_config
from smopd.errors import UserError
from smopd.models import loading as models
from smopd.models.loading import load_model, lora_targets
from smopd.pocket import MODEL_DIR


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have bitsandbytes and a GPU; the arguments of the loading tried on it."""
    seen = []

    def from_pretrained(path, **kwargs):
        seen.append(kwargs)
        raise OSError("that is all")

    monkeypatch.setattr(models, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    return seen


def asked(gpu, *sets, device="cuda"):
    with pytest.raises(UserError, match="that is all"):
        load_model(load_config(None, list(sets)), device)
    return gpu[0]


def test_a_plain_base_is_loaded_without_a_word_of_quantisation(gpu):
    assert set(asked(gpu)) == {"dtype", "attn_implementation"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_nf4_is_double_quantised_and_computes_in_the_models_dtype(gpu, dtype):
    kwargs = asked(gpu, "model.quantize=nf4", f"model.dtype={dtype}", device="cuda:1")
    config = kwargs["quantization_config"]
    assert config.load_in_4bit
    assert not config.load_in_8bit
    assert config.bnb_4bit_quant_type == "nf4"
    assert config.bnb_4bit_use_double_quant is True
    assert config.bnb_4bit_compute_dtype == kwargs["dtype"] == getattr(torch, dtype)
    assert kwargs["device_map"] == {"": torch.device("cuda:1")}


def test_int8(gpu):
    kwargs = asked(gpu, "model.quantize=int8")
    assert kwargs["quantization_config"].load_in_8bit
    assert not kwargs["quantization_config"].load_in_4bit
    assert kwargs["device_map"] == {"": torch.device("cuda")}


def test_a_quantised_base_stays_where_it_was_put(gpu, monkeypatch):
    """bitsandbytes' weights refuse to be moved."""
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(MODEL_DIR))
    monkeypatch.setattr(model, "to", lambda *_: pytest.fail("moved"))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: model)
    assert load_model(load_config(None, ["model.quantize=nf4"]), "cuda").model is model


@pytest.mark.parametrize("setting", ["rollout.merge", "train.shard"])
def test_what_cannot_be_done_with_a_quantised_base_is_refused(gpu, setting):
    with pytest.raises(UserError, match=setting):
        load_model(load_config(None, ["model.quantize=nf4", f"{setting}=true"]))
    assert not gpu


def test_a_gguf_file_is_not_quantised_again(gpu, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"model\.quantize: a GGUF file"):
        load_model(load_config(None, [f"model.path={tmp_path}/m.gguf", "model.quantize=int8"]))


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_what_is_missing_is_named(smopd, monkeypatch, kind):
    """Through the command line, on this machine as it is and on one that has the package."""
    unfolded = ("--set", f"model.quantize={kind}", "--set", "rollout.merge=false")
    if importlib.util.find_spec("bitsandbytes") is None:
        code, _, err = smopd("train", "pocket", *unfolded)
        assert code == 2
        assert "pip install 'smopd[quantized]'" in err
    monkeypatch.setattr(models, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, err = smopd("eval", "pocket", "--limit", "1", *unfolded)
    assert code == 2
    assert "model.quantize" in err
    assert "needs a GPU" in err


def test_the_4bit_recipe_is_the_8b_recipe_for_a_smaller_gpu():
    small, large = load_config("qwen3-8b-4bit"), load_config("qwen3-8b")
    assert (small.model.quantize, small.model.dtype) == ("nf4", "bfloat16")
    assert small.train.recompute
    assert not small.rollout.merge
    assert small.objective == large.objective
    assert small.lora == large.lora
    assert small.optim == large.optim
    assert (small.train.steps, small.train.rollouts) == (large.train.steps, large.train.rollouts)


@pytest.fixture(scope="module")
def phi3():
    shape = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 50,
    }
    return Phi3ForCausalLM(Phi3Config(**shape, pad_token_id=0, bos_token_id=1, eos_token_id=2))


def test_lora_targets_are_layers_that_exist(phi3):
    assert lora_targets(phi3, ["qkv_proj", "down_proj"]) == ["qkv_proj", "down_proj"]
    assert lora_targets(phi3, ["self_attn.o_proj"]) == ["self_attn.o_proj"]  # as PEFT takes them
    assert set(lora_targets(phi3, ["all-linear"])) == {
        "qkv_proj",
        "o_proj",
        "gate_up_proj",
        "down_proj",
    }  # without the head
    with pytest.raises(UserError) as caught:
        lora_targets(phi3, ["q_proj", "o_proj", "proj"])
    assert str(caught.value).startswith(
        "lora.targets: this model has no layer named q_proj, proj; its linear layers are: "
    )
    assert all(name in str(caught.value) for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"))


def test_attention_that_is_not_soft_capped_stays_as_it_was(tmp_path, caplog):
    folder = FAMILIES["gemma3"].save(tmp_path)
    assert load_model(load_config(None, [f"model.path={folder}"])).model.config._attn_implementation == "sdpa"
    assert "soft-caps" not in caplog.text

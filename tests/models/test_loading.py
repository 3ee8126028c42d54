"""What loading a model tells transformers, and what it refuses."""

import ast
import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.families import FAMILIES
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
    assert set(asked(gpu)) == {"dtype", "attn_implementation", "trust_remote_code", "output_loading_info"}


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
    monkeypatch.setattr(
        AutoModelForCausalLM, "from_pretrained", lambda *_, **__: (model, {"missing_keys": set()})
    )
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
    """Without a GPU nothing need be installed; with one, the package."""
    unfolded = ("--set", f"model.quantize={kind}", "--set", "rollout.merge=false")
    if importlib.util.find_spec("bitsandbytes") is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        with pytest.raises(UserError, match=r"pip install 'smopd\[quantized\]'"):
            load_model(load_config(None, [f"model.quantize={kind}"]))
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


@pytest.fixture
def broken(tmp_path):
    """A copy of the pocket model to break."""
    return shutil.copytree(MODEL_DIR, tmp_path / "broken")


def without_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.mlp.gate_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def with_a_shorter_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.gate_proj.weight"
    save_file(tensors | {name: tensors[name][:-1].clone()}, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("wound", "expected"),
    [
        (without_a_tensor, "its weights lack model.layers.0.mlp.gate_proj.weight"),
        (with_a_shorter_tensor, "cannot be loaded"),
        (lambda f: (f / "model.safetensors").write_bytes(bytes(900)), "cannot be loaded"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be loaded"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be loaded"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot be loaded"),
    ],
    ids=["a tensor less", "another shape", "no weights", "no file", "config", "tokenizer"],
)
def test_a_broken_base_is_an_error(smopd, broken, wound, expected):
    wound(broken)
    code, out, err = smopd("eval", "broken", "--limit", "1", "--data", "pocket:eval:1")
    assert (code, out) == (2, "")
    assert "model.path: " in err
    assert expected in err


AUTO = {
    "AutoConfig": "own.Config",
    "AutoModelForCausalLM": "own.Model",
    "AutoTokenizer": ["own.Tok", "own.Tok"],
}


@pytest.mark.parametrize("known", [False, True], ids=["unknown type", "known type"])
@pytest.mark.parametrize(
    "line",
    [
        ("eval", "./broken", "--limit", "1", "--data", "pocket:eval:1", "--set", "eval.tokens=4"),
        ("eval", "./broken", "--limit", "1", "--engine", "vllm-http", "--url", "http://127.0.0.1:9"),
        ("plan", "pocket", "--set", "model.path=./broken"),
        (
            "train",
            "pocket",
            "--set",
            "model.path=./broken",
            "--set",
            "train.steps=1",
            "--set",
            "train.rollouts=1",
        ),
    ],
    ids=["eval", "eval with servers", "plan", "train"],
)
def test_code_that_a_model_brings_is_never_run_and_nobody_is_asked(smopd, broken, monkeypatch, line, known):
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # what somebody at the terminal might type
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((broken / name).read_text()) | {"auto_map": AUTO}
        if not known:
            settings |= {"model_type": "own"} if name == "config.json" else {"tokenizer_class": "Own"}
        (broken / name).write_text(json.dumps(settings))
    (broken / "own.py").write_text(f"open({str(broken.parent / 'it-ran')!r}, 'w')\n")
    code, out, err = smopd(*line)
    assert not (broken.parent / "it-ran").exists()
    assert "[y/N]" not in out + err
    if not known:
        assert code == 2, err
        assert "Traceback" not in err
    if not known and line[0] in ("eval", "train"):
        assert "it brings code of its own, and smopd runs none" in err


def test_no_call_leaves_the_question_to_transformers():
    calls = []
    for file in Path(models.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.match(r"Auto\w+\.from_\w+$", ast.unparse(node.func)):
                keywords = {word.arg or ast.unparse(word.value) for word in node.keywords}
                calls.append(f"{file.name}: {ast.unparse(node)}")
                assert keywords & {"trust_remote_code", "NO_CODE"}, calls[-1]
    assert len(calls) >= 7

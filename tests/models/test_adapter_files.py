"""Adapters on disk: whatever is broken about one is an error that names the file, for every verb and every
way to name an adapter; a sound one loads.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.played import move_student
from support.runs import complaint

from smopd.config import load_config
from smopd.errors import UserError
from smopd.models import load_model, resolve_adapter
from smopd.models.adapter_files import CONFIG, REQUIRED, WEIGHTS, check_fit, load_adapter
from smopd.models.adapters import attach, student_parameters
from smopd.models.loading import skeleton
from smopd.runs.writer import RunFolder

SETTINGS = load_config("pocket", ["lora.r=4"])
FILES = sorted([*REQUIRED, "README.md", "checksums.json"])


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A run with two checkpoints; nothing but the adapter of the second differs."""
    folder = RunFolder(tmp_path_factory.mktemp("adapters") / "run", SETTINGS)
    folder.begin()
    model = attach(load_model(SETTINGS).model, SETTINGS.lora, 1)
    optimizer = torch.optim.AdamW(student_parameters(model).values())
    for step in (1, 2):
        move_student(model, float(step))
        folder.save_checkpoint(step, model, optimizer, 2)
    return folder.path


@pytest.fixture
def run(written, tmp_path) -> Path:
    return shutil.copytree(written, tmp_path / "run")


@pytest.fixture
def plain(run, tmp_path) -> Path:
    """The same adapter as anybody's PEFT folder."""
    (tmp_path / "plain").mkdir()
    for name in (CONFIG, WEIGHTS):
        shutil.copy(run / "checkpoints/step-000002" / name, tmp_path / "plain")
    return tmp_path / "plain"


def flip(path: Path, at: float = 0.9) -> None:
    raw = bytearray(path.read_bytes())
    raw[int(at * (len(raw) - 1))] ^= 1
    path.write_bytes(raw)


WOUNDS = {"flipped": flip, "emptied": lambda p: p.write_bytes(b""), "deleted": Path.unlink}


@pytest.mark.parametrize("wound", WOUNDS)
@pytest.mark.parametrize("name", FILES)
def test_a_wound_in_any_file_of_a_checkpoint_is_an_error_that_names_a_sound_one(run, name, wound):
    newest = run / "checkpoints/step-000002"
    WOUNDS[wound](newest / name)
    for way in (run, newest):
        message = complaint(way, call=resolve_adapter)
        assert re.search(rf"step-000002: damaged: (it has no )?{name}", message)
        assert f"use an older checkpoint, which is sound: {run / 'checkpoints/step-000001'}" in message
    with pytest.raises(UserError, match="damaged"):  # also where nobody has resolved it before
        load_adapter(skeleton(SETTINGS), newest)


def test_nothing_sound_left_is_said(run):
    for step in (1, 2):
        flip(run / f"checkpoints/step-00000{step}/adapter_model.safetensors")
    assert "no other sound checkpoint: train it again" in complaint(run, call=resolve_adapter)


def test_a_copy_of_a_checkpoint_keeps_its_checksums(run, tmp_path):
    copy = shutil.copytree(run / "checkpoints/step-000002", tmp_path / "elsewhere")
    assert resolve_adapter(copy) == copy
    flip(copy / WEIGHTS)
    assert "elsewhere: damaged: adapter_model.safetensors is not what" in complaint(
        copy, call=resolve_adapter
    )
    (copy / "checksums.json").unlink()
    assert "it has no checksums.json" in complaint(copy, call=resolve_adapter)


def test_the_newest_checkpoint_is_the_one_of_the_last_step(run):
    (run / "checkpoints/step-000002").rename(run / "checkpoints/step-1000000")  # sorts before step-000001
    assert resolve_adapter(run).name == "step-1000000"


VERBS = {
    "eval": ("eval", "run", "--data", "pocket:eval:2"),
    "eval, checkpoint": ("eval", "pocket", "--adapter", "run/checkpoints/step-000002", "--limit", "1"),
    "eval, run": ("eval", "pocket", "--adapter", "run", "--limit", "1"),
    "eval, setting": ("eval", "pocket", "--set", "model.adapter=run", "--limit", "1"),
    "eval, vllm": ("eval", "run", "--engine", "vllm-http", "--url", "http://127.0.0.1:9", "--limit", "1"),
    "export": ("export", "run", "out"),
    "export, checkpoint": ("export", "run", "out", "--checkpoint", "step-000002"),
    "train": ("train", "pocket", "--set", "model.adapter=run", "--set", "train.steps=1", "--out", "out"),
}


@pytest.mark.parametrize("line", VERBS.values(), ids=VERBS.keys())
def test_every_verb_stops_at_a_flipped_bit(smopd, run, tmp_path, line):
    flip(run / "checkpoints/step-000002" / WEIGHTS)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = smopd(*line)
    assert code == 2, err
    assert out == ""
    assert "step-000002: damaged: adapter_model.safetensors is not what was written" in err
    assert "step-000001" in err
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_sound_checkpoint_is_exported_though_the_newest_is_damaged(smopd, run):
    flip(run / "checkpoints/step-000002" / WEIGHTS)
    code, _, err = smopd("export", "run", "out", "--checkpoint", "step-000001")
    assert code == 0, err


def test_a_plain_adapter_needs_no_checksums(plain):
    assert resolve_adapter(plain) == plain
    model = load_adapter(load_model(SETTINGS).model, plain)
    saved = load_file(plain / WEIGHTS)
    assert {n: p.detach() for n, p in student_parameters(model).items()}.keys() == saved.keys()
    assert all(torch.equal(p, saved[n]) for n, p in student_parameters(model).items())
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    check_fit(skeleton(SETTINGS), plain)


def test_another_tools_folders_may_be_named_as_ours(plain, tmp_path):
    other = tmp_path / "other/checkpoints/step-7"
    shutil.copytree(plain, other)
    assert resolve_adapter(tmp_path / "other") == other


def change_config(**values):
    def change(folder: Path) -> None:
        tree = json.loads((folder / CONFIG).read_text()) | values
        (folder / CONFIG).write_text(json.dumps(tree))

    return change


def change_tensors(change):
    def changed(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors, sorted(tensors)[0])
        save_file(tensors, folder / WEIGHTS)

    return changed


def cut(folder: Path) -> None:
    raw = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(raw[: len(raw) * 2 // 3])


LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BROKEN = {
    "truncated": (cut, "adapter_model.safetensors: damaged"),
    "empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "adapter_model.safetensors: damaged"),
    "zeros": (lambda f: (f / WEIGHTS).write_bytes(bytes(5000)), "adapter_model.safetensors: damaged"),
    "header": (lambda f: flip(f / WEIGHTS, 0.0), "adapter_model.safetensors"),
    "no tensors file": (lambda f: (f / WEIGHTS).unlink(), "holds no adapter_model.safetensors"),
    "pickle": (lambda f: (f / WEIGHTS).rename(f / "adapter_model.bin"), "holds no adapter_model.safetensors"),
    "nan": (change_tensors(lambda t, n: t[n].view(-1)[3].fill_(float("nan"))), "numbers that are not finite"),
    "infinite": (change_tensors(lambda t, n: t[n].view(-1)[3].fill_(float("inf"))), "not finite"),
    "all zero": (change_tensors(lambda t, n: [x.zero_() for x in t.values()]), "all its numbers are 0"),
    "a tensor less": (change_tensors(lambda t, n: t.pop(n)), "it has no tensor base_model"),
    "a tensor more": (
        change_tensors(lambda t, n: t.update({n.replace("layers.0", "layers.77"): t[n].clone()})),
        "the model has no place for base_model.model.model.layers.77",
    ),
    "a tensor by another name": (
        change_tensors(lambda t, n: t.update({n.replace("lora_A", "lora_C"): t.pop(n)})),
        "it has no tensor base_model",
    ),
    "another shape": (change_tensors(lambda t, n: t.update({n: t[n][:, :-1].contiguous()})), "size mismatch"),
    "another rank": (change_config(r=8), "says rank 8, a tensor of adapter_model.safetensors has 4"),
    "an absurd rank": (change_config(r=10**12), "says rank 1000000000000"),
    "fewer targets": (change_config(target_modules=LAYERS[:-1]), "the model has no place for"),
    "more targets": (change_config(target_modules=[*LAYERS, "lm_head"]), "it has no tensor"),
    "no such targets": (change_config(target_modules=["c_attn"]), "does not fit this model: Target modules"),
    "no config": (lambda f: (f / CONFIG).unlink(), "no adapter_config.json"),
    "config cut": (lambda f: (f / CONFIG).write_text('{"r": 4'), "adapter_config.json: not valid JSON"),
    "config a list": (lambda f: (f / CONFIG).write_text("[]"), "adapter_config.json: expected the settings"),
    "config bytes": (lambda f: (f / CONFIG).write_bytes(b"\xff\xfe\x00"), "adapter_config.json: is UTF-16"),
    "config deep": (lambda f: (f / CONFIG).write_text("[" * 99999), "adapter_config.json: not valid JSON"),
    "another kind": (change_config(peft_type="IA3"), "expected the settings of a LoRA adapter"),
    "rank in words": (change_config(r="four"), "r and lora_alpha must be positive numbers"),
    "no alpha": (change_config(lora_alpha=None), "r and lora_alpha must be positive numbers"),
    "alpha zero": (change_config(lora_alpha=0), "r and lora_alpha must be positive numbers"),
    "targets a number": (change_config(target_modules=5), "plain"),
    "a module to import": (change_config(megatron_config={"a": 1}, megatron_core="antigravity"), "Megatron"),
}


@pytest.mark.parametrize(("wound", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_a_plain_adapter_must_be_whole_and_fit(plain, wound, expected):
    wound(plain)

    def use(folder: Path) -> None:
        check_fit(skeleton(SETTINGS), resolve_adapter(folder))

    message = complaint(plain, call=use)
    assert expected in message
    assert str(plain) in message


@pytest.mark.parametrize("engine", ["hf", "vllm-http"])
def test_an_adapter_that_does_not_fit_is_never_an_accuracy(smopd, plain, engine):
    BROKEN["a tensor less"][0](plain)
    more = ("--url", "http://127.0.0.1:9") if engine == "vllm-http" else ()
    code, out, err = smopd("eval", "pocket", "--adapter", "plain", "--limit", "1", "--engine", engine, *more)
    assert (code, out) == (2, "")
    assert "plain: does not fit this model: it has no tensor" in err
    code, _, err = smopd("train", "pocket", "--set", "model.adapter=plain", "--set", "train.steps=1")
    assert code == 2
    assert "does not fit" in err


def test_what_is_not_there_is_said(smopd):
    for line in (("eval", "pocket", "--adapter", "gone"), ("export", "gone", "out")):
        code, _, err = smopd(*line)
        assert code == 2
        assert "gone: neither a PEFT adapter (no adapter_config.json) nor a run folder" in err

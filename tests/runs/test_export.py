"""`smopd export`: the model folder says what base and adapter said, and is whole or not there."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from support.families import FAMILIES, tiny_gguf
from support.runs import replies, set_words, train
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from smopd.config import load_config
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.files import file_digest
from smopd.models import load_model
from smopd.models.adapters import attach, student_parameters
from smopd.pocket import MODEL_DIR
from smopd.runs import export as module
from smopd.runs.writer import RunFolder

SMALL = ["train.steps=2", "train.rollouts=2", "train.checkpoint_every=1", "optim.lr=3e-2",
         "rollout.answer_tokens=16", "rollout.middle_tokens=12", "eval.tokens=24",
         "eval.middle_tokens=16"]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A pocket run of two steps, with its data in a file."""
    folder = tmp_path_factory.mktemp("export")
    data = folder / "own.jsonl"
    data.write_text("".join(json.dumps(e.to_json()) + "\n" for e in load_examples("pocket:train", 8)))
    where = (f"data.train={json.dumps(str(data))}", "engine.servers=['http://secret-host:8000']")
    return train(folder / "run", *SMALL, *where)


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def logits(model, count=40):
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(count)[None]).logits


def test_the_exported_model_replies_as_base_and_adapter_do(smopd, run, tmp_path):
    code, out, err = smopd("export", "run", "out/model", "--json")
    assert code == 0, err
    exported = json.loads(out)
    assert exported["adapter"].endswith("step-000002")
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
        "README.md",
    } <= {*exported["files"]}
    same = ("--data", "pocket:eval:6", "--set", "eval.tokens=24", "--set", "eval.middle_tokens=16", "--json")
    replies_by_target = {}
    for target in ("run", "out/model", "pocket"):
        code, out, err = smopd("eval", target, *same)
        assert code == 0, err
        replies_by_target[target] = replies(tmp_path / json.loads(out)["folder"])
    assert replies_by_target["out/model"] == replies_by_target["run"]
    assert replies_by_target["pocket"] != replies_by_target["run"]  # training changed what is said
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out/model")
    base = AutoModelForCausalLM.from_pretrained(MODEL_DIR)
    before = logits(base)
    adapted = PeftModel.from_pretrained(
        base, run / "checkpoints" / "step-000002"
    )  # PEFT alone, without smopd
    torch.testing.assert_close(logits(model), logits(adapted), rtol=1e-5, atol=1e-5)
    assert (logits(model) - before).abs().max() > 1e-2
    ours, theirs = (AutoTokenizer.from_pretrained(f) for f in (tmp_path / "out/model", MODEL_DIR))
    assert ours.chat_template == theirs.chat_template
    assert ours.encode("What is 3 plus 4?") == theirs.encode("What is 3 plus 4?")
    kept = GenerationConfig.from_pretrained(tmp_path / "out/model")
    assert (kept.eos_token_id, kept.pad_token_id) == (1, 0)


def test_the_card_tells_of_settings_data_and_evaluations_and_of_no_machine(smopd, run, trained):
    short = ("--data", "pocket:eval:3", "--set", "eval.tokens=16", "--set", "eval.middle_tokens=8")
    for target, place in (("pocket", "base"), ("run", "trained")):
        code, _, err = smopd("eval", target, *short, "--out", f"run/eval/{place}")
        assert code == 0, err
    assert smopd("export", "run", "model")[0] == 0
    card = (run.parent / "model" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    data = f"`own.jsonl`, sha256 {file_digest(trained.parent / 'own.jsonl')}"
    run_facts = ("step 2 of 2", "seed 42", "`entropy`", "smopd 0.1.0", "licence", "lr = 0.03")
    for excerpt in (
        data,
        *run_facts,
        "| base | pocket:eval:3 | SHARDED |",
        "| this model | pocket:eval:3 | FULL |",
    ):
        assert excerpt in card, excerpt
    for kept_private in (str(trained.parent), "secret-host", str(MODEL_DIR)):
        assert kept_private not in card


def test_an_earlier_checkpoint_and_another_precision(smopd, run):
    assert smopd("export", "run", "one", "--checkpoint", "step-000001")[0] == 0
    assert smopd("export", "run/checkpoints/step-000001", "two", "--dtype", "bfloat16")[0] == 0
    one, two = (
        AutoModelForCausalLM.from_pretrained(run.parent / name, dtype="auto") for name in ("one", "two")
    )
    assert (one.dtype, two.dtype) == (torch.float32, torch.bfloat16)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight.bfloat16(), two.state_dict()[name]), name  # folded in float32, rounded once
    assert "step 1 of 2" in (run.parent / "two" / "README.md").read_text()


def test_an_adapter_without_a_run_names_its_base(smopd, run):
    shutil.copytree(run / "checkpoints" / "step-000002", run.parent / "adapter")
    assert smopd("export", "run", "one")[0] == 0
    assert smopd("export", "adapter", "two")[0] == 0
    one, two = (AutoModelForCausalLM.from_pretrained(run.parent / name) for name in ("one", "two"))
    assert torch.equal(logits(one), logits(two))


def test_mistakes_are_named_and_nothing_is_written(smopd, run, tmp_path):
    (tmp_path / "there").mkdir()
    for line, message in {
        ("export", "run", "there"): "there: exists",
        ("export", "run", "new", "--dtype", "int4"): "--dtype int4: unknown",
        ("export", "run", "new", "--checkpoint", "step-000009"): "step-000001, step-000002",
        ("export", "there", "new"): "neither a PEFT adapter",
    }.items():
        code, _, err = smopd(*line)
        assert code == 2, err
        assert message in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "there"]
    assert not any((tmp_path / "there").iterdir())


def test_ctrl_c_leaves_nothing_behind(smopd, run, tmp_path, monkeypatch):
    def interrupted(*args):
        assert (tmp_path / ".partial-model" / "model.safetensors").exists()  # the weights were there
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "model_card", interrupted)
    code, _, err = smopd("export", "run", "model")
    assert code == 130
    assert "nothing was written" in err
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_base_trained_in_fewer_bits_is_loaded_in_full(run, tmp_path, monkeypatch):
    file = run / "config.toml"
    file.write_text(file.read_text().replace('quantize = "none"', 'quantize = "nf4"'))
    seen = []
    monkeypatch.setattr(module, "load_model", lambda config: seen.append(config.model) or load_model(config))
    module.export(run, tmp_path / "model", dtype="float16")
    assert [(m.quantize, m.dtype) for m in seen] == [("none", "float32")]
    assert "quantization_config" not in json.loads((tmp_path / "model" / "config.json").read_text())
    assert "base weights in nf4 while training" in (tmp_path / "model" / "README.md").read_text()


def test_a_capped_model_keeps_its_caps_and_an_adapter_of_another_model_is_refused(smopd, run, tmp_path):
    folder = FAMILIES["gemma2"].save(tmp_path / "gemma")
    (tmp_path / "empty.toml").write_text("")
    more = set_words([*SMALL, f"model.path={json.dumps(str(folder))}", "data.train_limit=4"])
    assert smopd("train", "empty.toml", "--out", "capped", *more)[0] == 0
    assert smopd("export", "capped", "model")[0] == 0
    saved = json.loads((tmp_path / "model" / "config.json").read_text())
    assert saved["final_logit_softcapping"] == 2.0
    assert saved["eos_token_id"] == json.loads((folder / "config.json").read_text())["eos_token_id"]
    (tmp_path / "mixed").mkdir()
    source = run / "checkpoints/step-000002"
    shutil.copy(source / "adapter_model.safetensors", tmp_path / "mixed")
    settings = json.loads((source / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = str(folder)
    (tmp_path / "mixed/adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="mixed: does not fit this model"):
        module.export(tmp_path / "mixed", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_gguf_base_becomes_a_plain_folder(tmp_path):
    source = tiny_gguf(tmp_path / "tiny.gguf")
    config = load_config(None, [f"model.path={json.dumps(str(source))}", "lora.r=2", "lora.alpha=2"])
    folder = RunFolder(tmp_path / "run", config)
    folder.begin()
    chat = load_model(config)
    before = logits(chat.model)
    peft = attach(chat.model, config.lora, 0)
    with torch.no_grad():
        for parameter in student_parameters(peft).values():
            parameter.add_(0.05)
    folder.save_checkpoint(1, peft, torch.optim.AdamW(student_parameters(peft).values()), 1)
    module.export(tmp_path / "run", tmp_path / "model")
    assert "quantization_config" not in json.loads((tmp_path / "model" / "config.json").read_text())
    again = load_model(load_config(None, [f"model.path={json.dumps(str(tmp_path / 'model'))}"]))
    torch.testing.assert_close(logits(again.model), logits(peft), rtol=1e-5, atol=1e-5)
    assert (logits(again.model) - before).abs().max() > 0.01
    assert again.renderer.end_ids == chat.renderer.end_ids
    hello = [{"role": "user", "content": "Hello."}]
    assert again.renderer.ids(hello) == chat.renderer.ids(hello)

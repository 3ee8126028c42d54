"""Real chat models through the same commands as the pocket model: SmolLM2-135M-Instruct, and Qwen3's shape
with its tokenizer.
"""

import json
from pathlib import Path

import pytest
import torch
from conftest import shared
from support.real_models import smollm2_gguf
from support.runs import replies, rows, set_words
from transformers import Qwen3Config, Qwen3ForCausalLM

SETTINGS = [
    "train.steps=2", "train.checkpoint_every=1", "rollout.middle_tokens=12", "rollout.answer_tokens=16",
    "lora.r=8", "lora.alpha=16", "optim.lr=1e-4", "eval.tokens=24", "eval.middle_tokens=12",
    "objective.rho=1.0", "data.train_limit=4",
]  # fmt: skip


def train_and_evaluate(smopd, tmp_path, model, *more, rollouts=2) -> tuple[Path, Path]:
    """Two steps and an evaluation of four LiC math items; the folders of the run and of the evaluation."""
    data = shared("data/lic/math.json")
    where = (f"model.path={model}", f"data.train={data}", f"data.eval={data}", f"train.rollouts={rollouts}")
    recipe, out = tmp_path / "empty.toml", tmp_path / "run"
    recipe.write_text("")
    options = set_words([*SETTINGS, *where, *more])
    code, stdout, err = smopd("train", str(recipe), "--out", str(out), "--json", *options)
    assert code == 0, err
    row = json.loads(stdout)["last"]
    assert row["step"] == 2
    assert row["eligible_turns"] > 0
    assert row["loss/middle"] > 0
    assert row["grad_norm"] > 0
    assert row["full_branch"] == rollouts
    code, stdout, err = smopd("eval", str(out), "--limit", "4", "--json")
    assert code == 0, err
    summary = json.loads(stdout)
    assert {v["total"] for v in summary["views"].values()} == {4}
    assert all(sum(v["status"].values()) == 4 for v in summary["views"].values())
    return out, Path(summary["folder"])


@pytest.mark.slow
@pytest.mark.parametrize("thinking", [False, True])
def test_qwen3_shape_with_the_real_tokenizer_and_template(smopd, tmp_path, qwen3, thinking):
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151_936,  # padded beyond the tokenizer's 151,669
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
    )
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "model")
    qwen3.save_pretrained(tmp_path / "model")
    out, _ = train_and_evaluate(smopd, tmp_path, tmp_path / "model", f"chat.thinking={str(thinking).lower()}")
    assert f"thinking = {str(thinking).lower()}" in (out / "config.toml").read_text()
    first = rows(out / "rollouts" / "step-000001.jsonl")[0]
    assert len(first["sharded"]) >= 4


@pytest.mark.long
@pytest.mark.smollm2
def test_smollm2_trains_and_is_evaluated_from_its_gguf_file(smopd, tmp_path):
    # One rollout: a step of two is a minute.
    _, evaluation = train_and_evaluate(smopd, tmp_path, smollm2_gguf(), rollouts=1)
    conversations = replies(evaluation)
    assert all(turns[0].strip() for turns in conversations.values())  # a real model has something to say
    text = " ".join(reply for turns in conversations.values() for reply in turns).lower()
    assert sum(word in text for word in ("the", "is", "to", "of", "number")) >= 4  # and says it in English

"""Chat model families end to end: a model folder, `smopd train`, `smopd eval`; and fast scoring equals plain
in each.
"""

import json

import pytest
import torch
from families import CAPS, FAMILIES, PADDED
from safetensors.torch import load_file
from smopd.training.scoring_step import FAST, PLAIN, Rollout, score
from transformers import AutoModelForCausalLM

from smopd.config import load_config
from smopd.evaluation.prepare import prepared_examples
from smopd.models import load_model
from smopd.models.adapters import attach, student_parameters
from smopd.rollout import Driver, Sampling
from smopd.rollout.hf import HFEngine
from smopd.scoring.passes import body_and_head, packable
from smopd.verify.verifiers import verify_all

SETTINGS = [
    "data.train=pocket:train", "data.train_limit=4", "train.steps=2", "train.rollouts=2", "train.checkpoint_every=1",
    "rollout.middle_tokens=8", "rollout.answer_tokens=12", "lora.r=4", "lora.alpha=8", "optim.lr=1e-2", "objective.rho=1.0",
    "eval.tokens=12", "eval.middle_tokens=8", "teacher.decay=0.9",
]  # fmt: skip
families = pytest.mark.parametrize("name", FAMILIES)


def sets(model, name, *more):
    return [f"model.path={json.dumps(str(model))}", *SETTINGS, *FAMILIES[name].settings, *more]


@families
def test_trained_and_evaluated_through_the_command_line(smopd, tmp_path, name):
    (tmp_path / "empty.toml").write_text("")
    words = [w for s in sets(FAMILIES[name].save(tmp_path / "model"), name) for w in ("--set", s)]
    code, out, err = smopd("train", "empty.toml", "--out", "run", "--json", *words)
    assert code == 0, err
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["skipped"] for row in rows] == [0, 0]
    for row in rows:
        assert row["loss"] > 0  # the second reply's clean context is another one: never exactly zero
        assert row["rollout/logp_gap"] < 1e-4
    assert rows[1]["grad_norm"] > 0
    saved = {}
    for step in (1, 2):
        folder = tmp_path / "run" / "checkpoints" / f"step-{step:06d}"
        saved[step] = (
            load_file(folder / "adapter_model.safetensors"),
            load_file(folder / "teacher.safetensors"),
        )
    (student1, teacher1), (student2, teacher2) = saved[1], saved[2]
    assert set(student1) == set(teacher1)
    for key in student1:
        assert not torch.equal(student1[key], student2[key]), key
        torch.testing.assert_close(teacher2[key], 0.9 * teacher1[key] + 0.1 * student2[key])
    code, out, err = smopd("eval", "run", "--data", "pocket:eval:2", "--json")
    assert code == 0, err
    assert {v["total"] for v in json.loads(out)["views"].values()} == {2}


def played(model, name, tmp_path, count=2):
    """A student that is not its teacher, and conversations it played."""
    config = load_config(None, sets(model, name))
    chat = load_model(config)
    peft = attach(chat.model, config.lora, 0)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in student_parameters(peft).values():
            parameter.add_(0.1 * torch.randn_like(parameter))
    driver = Driver(HFEngine(peft, chat.renderer.end_ids), chat.renderer, Sampling(1.0, 12), 8)
    examples = prepared_examples(config, "train")[:count]
    sharded, full = (driver.play(examples, view, (0, "test")) for view in ("sharded", "full"))
    verdicts = verify_all([(c.example, c.final_text) for c in sharded])
    return config, chat, peft, [Rollout(*both) for both in zip(sharded, full, verdicts, strict=True)]


@families
def test_fast_scoring_equals_plain_scoring_and_the_models_own_logits(tmp_path, name):
    config, chat, peft, rollouts = played(FAMILIES[name].save(tmp_path), name, tmp_path)
    peft.double()  # the fused kernel's sums over a flat vocabulary are good to 1e-5 in float32, no better
    body, head = body_and_head(peft)
    assert packable(body, 200) == FAMILIES[name].packed
    assert head.shape[0] == PADDED > len(chat.tokenizer)
    found = []
    for path in (FAST, PLAIN):
        peft.zero_grad()
        losses, turns = score(peft, chat.renderer, rollouts, config.objective, keep=0.8, path=path)
        torch.stack([loss.total for loss in losses]).mean().backward()
        stats = [
            torch.stack([getattr(t.stats, f).detach() for f in t.stats.__dataclass_fields__])
            for own in turns
            for t in own
        ]
        found.append([*stats, *(p.grad for p in student_parameters(peft).values())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert max(s[0].max() for s in found[0][:4]) > 1e-3  # there is something to compare
    replies = [turn for rollout in rollouts for c in (rollout.sharded, rollout.full) for turn in c.turns]
    for turn, scored in zip(replies, (t for own in turns for t in own), strict=True):
        with torch.no_grad():
            logits = peft(input_ids=torch.tensor([[*turn.context, *turn.reply]])).logits[
                0, len(turn.context) - 1 : -1
            ]
        own = logits.log_softmax(-1).gather(-1, torch.tensor(turn.reply)[:, None])[:, 0]
        torch.testing.assert_close(scored.stats.student_logp, own, rtol=1e-4, atol=1e-4)


def test_gemma2s_caps_change_what_is_computed(tmp_path, caplog):
    """Both of them: otherwise the tests above would pass without."""
    folder = FAMILIES["gemma2"].save(tmp_path)
    loaded = load_model(load_config(None, sets(folder, "gemma2"))).model
    assert loaded.config._attn_implementation == "eager"
    assert "soft-caps its attention" in caplog.text
    ids = torch.arange(5, 25)[None]
    for field in CAPS:
        other = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **{field: None})
        with torch.no_grad():
            assert (other(ids).logits - loaded(ids).logits).abs().max() > 1e-2, field


def test_padded_ids_may_be_sampled_and_do_no_harm(tmp_path):
    """A real model never draws them; a random one may: they decode to nothing, and are scored like any token."""
    folder = FAMILIES["qwen3"].save(tmp_path)
    chat = load_model(load_config(None, sets(folder, "qwen3")))
    first = chat.renderer.encode("yes")
    assert chat.renderer.decode([*first, PADDED - 1, *first]) == "yesyes"
    with torch.no_grad():  # nothing but padding is ever likely
        chat.model.model.norm.weight.zero_()
        chat.model.lm_head.weight[len(chat.tokenizer) :] = 0
    engine = HFEngine(chat.model, chat.renderer.end_ids)
    driver = Driver(engine, chat.renderer, Sampling(1.0, 12, top_k=0, top_p=1.0), 8)
    examples = prepared_examples(load_config(None, SETTINGS), "train")
    drawn = [turn for c in driver.play(examples, "sharded", (0,)) for turn in c.turns]
    assert any(token >= len(chat.tokenizer) for turn in drawn for token in turn.reply)
    assert all(len(turn.logps) == len(turn.reply) for turn in drawn)


def test_a_family_with_other_projections_needs_their_names(smopd, tmp_path):
    (tmp_path / "empty.toml").write_text("")
    folder = FAMILIES["phi3"].save(tmp_path / "model")
    words = [w for s in sets(folder, "qwen3") for w in ("--set", s)]
    code, _, err = smopd("train", "empty.toml", "--out", "run", *words)
    assert code == 2
    assert "lora.targets: this model has no layer named" in err
    assert all(projection in err for projection in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"))
    assert "qkv_proj, gate_up_proj" in err
    assert not (tmp_path / "run").exists()

"""Chat model families end to end: a model folder, `smopd train`, `smopd eval`; and fast scoring equals plain
in each.
"""

import json

import pytest
import torch
from support.families import CAPS, FAMILIES, PADDED
from support.played import gradient, move_student, play, reply_logp, totals
from support.runs import checkpoint, metrics, set_words
from transformers import AutoModelForCausalLM

from smopd.config import load_config, plan_of
from smopd.evaluation.evaluate import prepared_examples
from smopd.models import load_model
from smopd.models.adapters import attach
from smopd.objective import Moment
from smopd.rollout import Sampling
from smopd.scoring.passes import body_and_head, packable
from smopd.training.scores import FAST, PLAIN, score

SETTINGS = [
    "data.train=pocket:train", "data.train_limit=4", "train.steps=2", "train.rollouts=2",
    "train.checkpoint_every=1", "rollout.middle_tokens=8", "rollout.answer_tokens=12", "lora.r=4",
    "lora.alpha=8", "optim.lr=1e-2", "objective.rho=1.0", "eval.tokens=12", "eval.middle_tokens=8",
    "teacher.decay=0.9",
]  # fmt: skip
families = pytest.mark.parametrize("name", FAMILIES)


def sets(model, name, *more):
    return [f"model.path={json.dumps(str(model))}", *SETTINGS, *FAMILIES[name].settings, *more]


@families
def test_trained_and_evaluated_through_the_command_line(smopd, tmp_path, name):
    (tmp_path / "empty.toml").write_text("")
    options = set_words(sets(FAMILIES[name].save(tmp_path / "model"), name))
    code, out, err = smopd("train", "empty.toml", "--out", "run", "--json", *options)
    assert code == 0, err
    rows = metrics(tmp_path / "run")
    assert [row["skipped"] for row in rows] == [0, 0]
    for row in rows:
        assert row["loss"] > 0  # the second reply's clean context is another one: never exactly zero
        assert row["rollout/logp_gap"] < 1e-4
    assert rows[1]["grad_norm"] > 0
    (student1, teacher1), (student2, teacher2) = (
        [checkpoint(tmp_path / "run", step, file) for file in ("adapter_model", "teacher")] for step in (1, 2)
    )
    assert set(student1) == set(teacher1)
    for key in student1:
        assert not torch.equal(student1[key], student2[key]), key
        torch.testing.assert_close(teacher2[key], 0.9 * teacher1[key] + 0.1 * student2[key])
    code, out, err = smopd("eval", "run", "--data", "pocket:eval:2", "--json")
    assert code == 0, err
    assert {v["total"] for v in json.loads(out)["views"].values()} == {2}


@families
def test_fast_scoring_equals_plain_scoring_and_the_models_own_logits(tmp_path, name):
    config = load_config(None, sets(FAMILIES[name].save(tmp_path), name))
    chat = load_model(config)
    model = attach(chat.model, config.lora, 0)
    move_student(model, 0.1)
    examples = prepared_examples(config, "train")[:2]
    rollouts = play(model, chat.renderer, examples, 2, Sampling(1.0, 12), middle_tokens=8)
    model.double()  # the fused kernel's sums over a flat vocabulary are good to 1e-5 in float32, no better
    body, head = body_and_head(model)
    assert packable(body, 200) == FAMILIES[name].packed
    assert head.shape[0] == PADDED > len(chat.renderer.tokenizer)
    results = []
    for path in (FAST, PLAIN):
        losses = score(model, chat.renderer, rollouts, plan_of(config), Moment(2, 2), path=path)
        totals(losses).mean().backward()
        scored = [pair for loss in losses for pair in loss.scored]
        all_columns = (column for _, stats in scored for column in vars(stats).values())
        columns = [column.detach() for column in all_columns if column is not None]
        results.append([totals(losses).detach(), *columns, gradient(model)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert max(stats.divergence.max() for _, stats in scored) > 1e-3  # there is something to compare
    assert [reply for reply, _ in scored] == [reply for rollout in rollouts for reply in rollout.replies()]
    for reply, stats in scored:
        with torch.no_grad():
            logp = reply_logp(model, reply.context, reply.tokens)
        chosen = logp.gather(-1, torch.tensor(reply.tokens)[:, None])[:, 0]
        torch.testing.assert_close(stats.student_logp, chosen, rtol=1e-4, atol=1e-4)


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
    """A real model never draws them; a random one may: they decode to nothing, and are scored as any."""
    folder = FAMILIES["qwen3"].save(tmp_path)
    chat = load_model(load_config(None, sets(folder, "qwen3")))
    first = chat.renderer.encode("yes")
    assert chat.renderer.decode([*first, PADDED - 1, *first]) == "yesyes"
    with torch.no_grad():  # nothing but padding is ever likely
        chat.model.model.norm.weight.zero_()
        chat.model.lm_head.weight[len(chat.renderer.tokenizer) :] = 0
    examples = prepared_examples(load_config(None, SETTINGS), "train")
    rollouts = play(chat.model, chat.renderer, examples, 0, Sampling(1.0, 12, top_k=0, top_p=1.0), 8)
    drawn = [reply for rollout in rollouts for reply in rollout.replies()]
    assert any(token >= len(chat.renderer.tokenizer) for reply in drawn for token in reply.tokens)
    assert all(len(reply.engine_logps) == len(reply.tokens) for reply in drawn)


def test_a_family_with_other_projections_needs_their_names(smopd, tmp_path):
    (tmp_path / "empty.toml").write_text("")
    folder = FAMILIES["phi3"].save(tmp_path / "model")
    code, _, err = smopd("train", "empty.toml", "--out", "run", *set_words(sets(folder, "qwen3")))
    assert code == 2
    assert "lora.targets: this model has no layer named" in err
    assert all(projection in err for projection in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"))
    assert "qkv_proj, gate_up_proj" in err
    assert not (tmp_path / "run").exists()

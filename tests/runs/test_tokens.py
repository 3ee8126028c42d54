"""The token log: one row a reply token, equal to what the step computed, which it does not change."""

import json

import pytest
import torch
from safetensors.torch import save_file
from support.runs import checkpoint, equal, metrics, rows, train

from smopd.errors import UserError
from smopd.runs.tokens import TYPES, read

SETTINGS = ["train.steps=3", "train.rollouts=3", "train.micro_batch=2", "objective.mask_after=0.5",
            "objective.rho=0.6", "objective.clip=0.05"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("tokens") / "run", *SETTINGS, "train.save_tokens=true")


def test_a_file_a_step_and_a_row_a_token(run):
    for row in metrics(run):
        logged = read(run / "tokens" / f"step-{row['step']:06d}.safetensors")
        columns = logged.values
        assert logged.ids == [r["id"] for r in rows(run / "rollouts" / f"step-{row['step']:06d}.jsonl")]
        assert {len(c) for c in columns.values()} == {row["tokens/sampled"]}
        for number, part in enumerate(logged.terms):
            mask = columns["part"] == number
            if not mask.any():
                continue
            assert columns["entropy"][mask].mean().item() == pytest.approx(row[f"entropy/{part}"], rel=1e-5)
            assert columns["divergence"][mask].mean().item() == pytest.approx(
                row[f"divergence/{part}"], rel=1e-5
            )
            kept = mask & columns["kept"].bool()
            assert columns["clipped"][kept].float().mean().item() == pytest.approx(
                row[f"clipped/{part}"], rel=1e-5
            )
        middle = columns["part"] == 0
        assert columns["kept"][middle].float().mean().item() == pytest.approx(row["kept"])
        assert columns["kept"][~middle].all()
        assert (columns["weight"][~middle] == 1).all()


def test_the_delta_of_the_metrics_follows_from_the_log(run):
    row = metrics(run)[-1]
    columns = read(run / "tokens" / "step-000003.safetensors").values
    deltas = []
    for rollout in columns["rollout"].unique():
        for turn in columns["turn"].unique():
            mask = (columns["rollout"] == rollout) & (columns["turn"] == turn) & (columns["part"] == 0)
            if mask.any():
                assert columns["position"][mask].tolist() == list(range(int(mask.sum())))
                deltas.append((columns["student_logp"] - columns["teacher_logp"])[mask].abs().mean().item())
    assert len(deltas) == row["eligible_turns"]
    assert sum(deltas) / len(deltas) == pytest.approx(row["delta"], rel=1e-5)


def test_logging_changes_nothing_else(run, tmp_path):
    silent = train(tmp_path / "run", *SETTINGS)
    assert metrics(silent) == metrics(run)
    assert not (silent / "tokens").exists()
    assert equal(checkpoint(silent, 3), checkpoint(run, 3))


def test_it_is_compact(run):
    file = run / "tokens" / "step-000001.safetensors"
    log = read(file)
    count, row = (
        len(log.values["token"]),
        sum(torch.empty(0, dtype=getattr(torch, kind)).element_size() for kind in TYPES.values()),
    )
    others = sum(2 * count + 6 * len(some.tokens) for some in log.others.values())
    assert others < 2 * 3 * 6 * count  # most tokens have hardly a rival
    assert file.stat().st_size < count * (row + 1) + others + 20 * len(log.pieces) + 4000


def test_both_models_likely_tokens_are_those_of_full_logits(run):
    log = read(run / "tokens" / "step-000001.safetensors")
    token, best = log.values["token"], log.values
    for model, logp in (("student", "student_logp"), ("teacher", "teacher_logp")):
        others = log.others[model]
        assert others.counts.max() <= 5
        assert int(others.counts.sum()) == len(others.tokens) == len(others.logps)
        assert (others.logps.float() >= -4.61).all()
        ends = others.counts.long().cumsum(0).tolist()
        for i, (end, number) in enumerate(zip(ends, others.counts.tolist(), strict=True)):
            alternatives = others.tokens[end - number : end].tolist()
            logps = others.logps[end - number : end].float()
            assert token[i].item() not in alternatives
            assert len(set(alternatives)) == number
            assert logps.tolist() == sorted(logps.tolist(), reverse=True)
            assert logps.exp().sum() + best[logp][i].exp() <= 1.01
    assert set(token.tolist()) | set(log.others["teacher"].tokens.tolist()) <= set(log.pieces)


def test_what_the_teacher_saw_stands_beside_it(run):
    log = read(run / "tokens" / "step-000001.safetensors")
    seen = rows(run / "tokens" / "step-000001.contexts.jsonl")
    played = rows(run / "rollouts" / "step-000001.jsonl")
    assert len(seen) == len(log.ids)
    for context_row, rollout in zip(seen, played, strict=True):
        users = [turn["user"] for turn in rollout["sharded"]]
        for reply in context_row["replies"]:
            ((weight, messages),) = [(c["weight"], c["messages"]) for c in reply["contexts"]]
            user_messages = [m["content"] for m in messages if m["role"] == "user"]
            assert weight == 1
            assert not any(m["role"] == "assistant" for m in messages)
            if reply["term"] == "middle":
                assert user_messages == users[: reply["turn"] + 1]
            else:
                assert len(user_messages) == 1


def test_the_texts_of_the_tokens_are_the_reply(run):
    log = read(run / "tokens" / "step-000001.safetensors")
    first = rows(run / "rollouts" / "step-000001.jsonl")[0]["sharded"][0]["reply"]
    mask = (log.values["rollout"] == 0) & (log.values["turn"] == 0) & (log.values["part"] == 0)
    assert "".join(log.pieces[i] for i in log.values["token"][mask].tolist()).startswith(first)


def test_a_log_of_an_earlier_version_is_read(run, tmp_path):
    log = read(run / "tokens" / "step-000001.safetensors")
    names = {key: json.dumps(getattr(log, key)) for key in ("ids", "terms", "selecting")}
    old = tmp_path / "step-000001.safetensors"
    save_file({name: log.values[name] for name in TYPES}, old, metadata=names)
    again = read(old)
    assert again.others == {}
    assert (again.values["view"] == log.values["view"]).all()


def test_a_file_that_is_none_is_named(tmp_path):
    path = tmp_path / "step-000001.safetensors"
    path.write_bytes(b"\0" * 50)
    with pytest.raises(UserError, match="step-000001"):
        read(path)

"""The token log: one row a reply token, equal to what the step computed, and no part of what a run computes."""

import json

import pytest
import torch
from safetensors.torch import load_file

from smopd.config import load_config
from smopd.errors import UserError
from smopd.training.loop import Trainer
from smopd.training.run_folder import RunFolder
from smopd.training.tokens import TYPES, read

SETTINGS = [
    "train.steps=3",
    "train.rollouts=3",
    "train.micro_batch=2",
    "objective.mask_after=0.5",
    "objective.rho=0.6",
    "objective.clip=0.05",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "run"
    config = load_config("pocket", [*SETTINGS, "train.save_tokens=true"])
    Trainer(config, RunFolder(path, config)).train()
    return path


def steps(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_file_a_step_and_a_row_a_token(run):
    for row in steps(run):
        logged = read(run / "tokens" / f"step-{row['step']:06d}.safetensors")
        columns = logged.values
        rollouts = [
            json.loads(line)
            for line in (run / "rollouts" / f"step-{row['step']:06d}.jsonl").read_text().splitlines()
        ]
        assert logged.ids == [r["id"] for r in rollouts]
        assert {len(c) for c in columns.values()} == {row["tokens/sampled"]}
        for number, part in enumerate(logged.terms):
            own = columns["part"] == number
            if not own.any():
                continue
            assert columns["entropy"][own].mean().item() == pytest.approx(row[f"entropy/{part}"], rel=1e-5)
            assert columns["divergence"][own].mean().item() == pytest.approx(
                row[f"divergence/{part}"], rel=1e-5
            )
            kept = own & columns["kept"].bool()
            assert columns["clipped"][kept].float().mean().item() == pytest.approx(
                row[f"clipped/{part}"], rel=1e-5
            )
        middle = columns["part"] == 0
        assert columns["kept"][middle].float().mean().item() == pytest.approx(row["kept"])
        assert columns["kept"][~middle].all()
        assert (columns["weight"][~middle] == 1).all()


def test_the_delta_of_the_metrics_follows_from_the_log(run):
    row = steps(run)[-1]
    columns = read(run / "tokens" / "step-000003.safetensors").values
    deltas = []
    for rollout in columns["rollout"].unique():
        for turn in columns["turn"].unique():
            own = (columns["rollout"] == rollout) & (columns["turn"] == turn) & (columns["part"] == 0)
            if own.any():
                assert columns["position"][own].tolist() == list(range(int(own.sum())))
                deltas.append((columns["student_logp"] - columns["teacher_logp"])[own].abs().mean().item())
    assert len(deltas) == row["eligible_turns"]
    assert sum(deltas) / len(deltas) == pytest.approx(row["delta"], rel=1e-5)


def test_logging_changes_nothing_else(run, tmp_path):
    config = load_config("pocket", SETTINGS)
    Trainer(config, RunFolder(tmp_path / "run", config)).train()
    assert steps(tmp_path / "run") == steps(run)
    assert not (tmp_path / "run" / "tokens").exists()
    ours, theirs = (
        load_file(p / "checkpoints" / "step-000003" / "adapter_model.safetensors")
        for p in (run, tmp_path / "run")
    )
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


def test_it_is_compact(run):
    file = run / "tokens" / "step-000001.safetensors"
    count = len(read(file).values["token"])
    row = sum(torch.empty(0, dtype=kind).element_size() for kind in TYPES.values())
    assert row == 39
    assert file.stat().st_size < count * row + 3000


def test_a_file_that_is_none_is_named(tmp_path):
    path = tmp_path / "step-000001.safetensors"
    path.write_bytes(b"\0" * 50)
    with pytest.raises(UserError, match="step-000001"):
        read(path)

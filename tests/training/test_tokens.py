"""The token log: one row a reply token, equal to what the step computed, which it does not change."""

import pytest
import torch
from runs import checkpoint, equal, metrics, rows, train

from smopd.errors import UserError
from smopd.training.tokens import TYPES, read

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
    row = metrics(run)[-1]
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
    silent = train(tmp_path / "run", *SETTINGS)
    assert metrics(silent) == metrics(run)
    assert not (silent / "tokens").exists()
    assert equal(checkpoint(silent, 3), checkpoint(run, 3))


def test_it_is_compact(run):
    file = run / "tokens" / "step-000001.safetensors"
    count = len(read(file).values["token"])
    row = sum(torch.empty(0, dtype=kind).element_size() for kind in TYPES.values())
    assert file.stat().st_size < count * row + 3000


def test_a_file_that_is_none_is_named(tmp_path):
    path = tmp_path / "step-000001.safetensors"
    path.write_bytes(b"\0" * 50)
    with pytest.raises(UserError, match="step-000001"):
        read(path)

"""The loop on the pocket model: the same seed twice, stopping and going on, schedules, what may and may not
change.
"""

import json
import logging
import math
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.runs import checkpoint, equal, metrics, rows, set_words, trainer_of

from smopd.config import load_config
from smopd.errors import EngineLost, UserError
from smopd.files import read_jsonl
from smopd.models import load_model
from smopd.models.adapters import student_parameters, teacher_parameters
from smopd.runs.writer import RunFolder
from smopd.settings import OptimSettings
from smopd.training.loop import Stopped, learning_rate

SMALL = ["train.steps=6", "train.rollouts=3", "train.micro_batch=3", "train.checkpoint_every=2",
         "optim.lr=1e-3", "optim.warmup_steps=0"]  # fmt: skip


def trainer(path: Path, *more: str, method: str | None = None):
    return trainer_of(path, *SMALL, *more, method=method)


def run(path: Path, *more: str, stop_after: int | None = None):
    new_trainer = trainer(path, *more)

    def interrupt(row):
        if row["step"] == stop_after:
            raise KeyboardInterrupt

    new_trainer.train(interrupt)
    return new_trainer


def same_run(one: Path, other: Path) -> None:
    """The same metrics, student and teacher."""
    assert metrics(one) == metrics(other)
    for name in ("adapter_model", "teacher"):
        assert equal(checkpoint(one, 6, name), checkpoint(other, 6, name))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    run(path)
    return path


def test_the_same_seed_gives_the_same_run_and_only_the_adapters_move(finished, tmp_path):
    new_trainer = trainer(tmp_path / "b")
    base = {n: p.detach().clone() for n, p in new_trainer.model.named_parameters() if "lora_" not in n}
    new_trainer.train()
    same_run(tmp_path / "b", finished)
    for file in (finished / "rollouts").iterdir():
        assert (tmp_path / "b" / "rollouts" / file.name).read_text() == file.read_text()
    fresh = load_model(new_trainer.config).model.state_dict()
    for name, parameter in new_trainer.model.named_parameters():
        if name in base:
            assert torch.equal(parameter, base[name])
            bare = name.removeprefix("base_model.model.").replace(".base_layer", "")
            assert torch.equal(parameter, fresh[bare])
    student, teacher = student_parameters(new_trainer.model), teacher_parameters(new_trainer.model)
    for name, parameter in student.items():
        if "lora_B" in name:  # starts at zero: the teacher lags behind
            assert 0 < teacher[name].norm() < parameter.norm()
    optimized = {id(p) for group in new_trainer.optimizer.param_groups for p in group["params"]}
    assert optimized == {id(p) for p in student.values()}


def test_another_seed_differs(finished, tmp_path):
    run(tmp_path / "b", "seed=43", "train.steps=1")
    assert metrics(tmp_path / "b")[0]["loss"] != metrics(finished)[0]["loss"]


@pytest.mark.parametrize("after", [2, 3])
def test_stopped_and_started_again_equals_the_uninterrupted_run(finished, tmp_path, after):
    """Rows of steps that were not checkpointed, as a crash leaves them, are repeated and not doubled."""
    with pytest.raises(Stopped) as stopped:
        run(tmp_path / "b", stop_after=after)
    assert stopped.value.step == after
    assert (tmp_path / "b" / "checkpoints" / f"step-{after:06d}").exists()
    if after == 2:
        with (tmp_path / "b" / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 3, "loss": 9.9}) + '\n{"step": 4, "lo')
    run(tmp_path / "b")
    same_run(tmp_path / "b", finished)


def test_micro_batches_do_not_change_the_update(finished, tmp_path):
    run(tmp_path / "b", "train.micro_batch=1", "train.row_tokens=300")
    for ours, theirs in zip(metrics(tmp_path / "b"), metrics(finished), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["tokens/sampled"] == theirs["tokens/sampled"]


def test_what_a_run_leaves_behind(finished):
    history = metrics(finished)
    assert [r["step"] for r in history] == [1, 2, 3, 4, 5, 6]
    assert [r["keep"] for r in history] == [1.0] + [0.8] * 5  # 0.33 * 6 = 1.98: the mask is on from step 2
    assert all(r["kept"] == 1 for r in history[:1])
    assert all(0.75 < r["kept"] < 1 for r in history[1:])
    expected = {
        "loss", "loss/middle", "loss/answer", "loss/full", "clipped/middle", "clipped/answer", "kept",
        "entropy/middle", "delta", "weight", "outcome", "reply_tokens/middle", "stop/end", "stop/length",
        "tokens/sampled", "grad_norm", "lr",
    }  # fmt: skip
    assert expected <= set(history[0])
    assert not [name for r in history for name in r if name.startswith("seconds/")]
    timed = rows(finished / "timings.jsonl")
    assert [r["step"] for r in timed] == [1, 2, 3, 4, 5, 6]
    assert set(timed[0]) == {"step", "seconds/rollout", "seconds/scoring", "seconds/update", "seconds/step"}
    assert len(list((finished / "rollouts").iterdir())) == 6
    assert [p.name for p in sorted((finished / "checkpoints").iterdir())] == ["step-000004", "step-000006"]
    assert load_config(finished / "config.toml") == load_config("pocket", SMALL)


def test_the_first_step_of_a_full_only_run_has_nothing_to_learn(tmp_path):
    """Exclusive FULL branch drawn always: student and teacher see the same context, so the loss is zero; the
    run survives.
    """
    run(tmp_path / "a", "objective.rho=1.0", "objective.full_branch=exclusive", "train.steps=1")
    (row,) = metrics(tmp_path / "a")
    assert row["loss"] == pytest.approx(0, abs=1e-5)
    assert row["outcome"] is None
    assert row["full_branch"] == 3
    assert row["eligible_turns"] == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["objective.clip_mode=scale", "objective.clip_level=vocab"], "objective.clip_mode"),
        (["objective.keep=1.0", "objective.ranking=random"], "objective.keep=1"),
        (["objective.keep=1.0", "objective.denominator=all"], "objective.keep=1"),
    ],
)
def test_a_setting_that_another_makes_idle_is_refused(tmp_path, settings, named):
    with pytest.raises(UserError, match=named):
        trainer(tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_configuration_is_refused_and_untouched(finished):
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*")}
    config = load_config("pocket", [*SMALL, "optim.lr=2e-3"])
    with pytest.raises(UserError, match=r"optim\.lr: 0\.001 in the run folder, 0\.002 now"):
        RunFolder(finished, config)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*")} == before


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder(tmp_path, load_config("pocket"))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_data_smaller_than_a_batch_goes_round(tmp_path):
    run(tmp_path / "a", "data.train=pocket:train:2", "train.rollouts=5", "train.steps=1")
    assert len((tmp_path / "a" / "rollouts" / "step-000001.jsonl").read_text().splitlines()) == 5


def test_every_epoch_sees_every_example_once(tmp_path):
    new_trainer = trainer(tmp_path / "a", "data.train=pocket:train:12", "train.rollouts=4")
    drawn = [[e.id for e in new_trainer.player.drawn(step)] for step in range(1, 10)]
    epochs = [[*drawn[k], *drawn[k + 1], *drawn[k + 2]] for k in (0, 3, 6)]
    assert all(sorted(epoch) == sorted(e.id for e in new_trainer.player.examples) for epoch in epochs)
    assert len({tuple(e) for e in epochs}) == 3


def test_examples_of_a_system_prompt_are_drawn_in_a_row(tmp_path):
    settings = ("data.train=pocket:train:24", "train.rollouts=4", "data.cluster=4")
    player = trainer(tmp_path / "a", *settings).player
    player.examples = [replace(e, system=f"database {k % 3}") for k, e in enumerate(player.examples)]
    steps = [player.drawn(step) for step in range(1, 13)]
    for epoch in (steps[:6], steps[6:]):  # each prompt has eight examples
        assert all(len({e.system for e in step}) == 1 for step in epoch)
        assert sorted(e.id for step in epoch for e in step) == sorted(e.id for e in player.examples)
    assert steps[:6] != steps[6:]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 0.75, 0.5, 0.25, 0]),
        ("cosine", [0.5, 1, 0.8536, 0.5, 0.1464, 0]),
    ],
)
def test_learning_rate(schedule, expected):
    optim = OptimSettings(lr=2.0, warmup_steps=2, schedule=schedule)
    assert [learning_rate(s, 6, optim) / 2 for s in range(1, 7)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_ctrl_c_on_the_command_line_and_the_same_command_again(
    finished, smopd, smopd_process, tmp_path, caplog
):
    arguments = ["train", "pocket", "--out", "run", *set_words(SMALL)]
    process = smopd_process(*arguments)
    file = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while process.poll() is None and len(read_jsonl(file)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Run the same command to resume" in stderr
    assert "Traceback" not in stderr
    with caplog.at_level(logging.INFO, "smopd"):
        code, _, err = smopd(*arguments)
    assert code == 0, err
    assert "continuing run after step" in caplog.text
    same_run(tmp_path / "run", finished)


def test_the_engines_own_log_probabilities_agree_with_the_training_pass(finished):
    for row in metrics(finished):
        assert row["rollout/logp_gap"] < 1e-5
        assert row["rollout/logp_gap_max"] < 1e-3
        assert 0.3 < row["rollout/reused"] < 1


def _shifted(new_trainer, by: float) -> None:
    """Make the engine claim other log-probabilities than its own."""
    real = new_trainer.engine.generate

    def generate(*arguments):
        return [replace(r, logps=tuple(x + by for x in r.logps)) for r in real(*arguments)]

    new_trainer.engine.generate = generate


def test_an_off_policy_engine_is_told_about_and_can_be_weighed_down(tmp_path, caplog):
    row_by_cap = {}
    for cap in (0.0, 2.0):
        settings = ("train.steps=1", f"objective.importance_cap={cap}", "engine.gap_warning=0.2")
        new_trainer = trainer(tmp_path / str(cap), *settings)
        _shifted(new_trainer, -0.5)
        new_trainer.train()
        (row_by_cap[cap],) = metrics(tmp_path / str(cap))
        assert row_by_cap[cap]["rollout/logp_gap"] == pytest.approx(0.5, abs=1e-4)
    assert caplog.text.count("another policy") == 2
    # every sampled token is e^0.5 likelier now than when it was drawn
    assert row_by_cap[2.0]["loss"] == pytest.approx(row_by_cap[0.0]["loss"] * math.exp(0.5), rel=1e-4)


def test_an_engine_that_is_lost_leaves_a_run_that_goes_on(finished, tmp_path):
    lost = trainer(tmp_path / "lost")
    real, calls = lost.engine.refresh, []

    def refresh(version, save):
        calls.append(version)
        if version == 3:
            raise EngineLost("no server answers")
        real(version, save)

    lost.engine.refresh = refresh
    with pytest.raises(EngineLost, match="no server answers\\nstopped after step 3; everything is saved"):
        lost.train()
    assert calls == [0, 1, 2, 3]
    run(tmp_path / "lost")
    same_run(tmp_path / "lost", finished)

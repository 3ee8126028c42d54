"""A run that goes on longer, or with another cadence: what is the same, what is said, what is refused."""

import logging
import shutil

import pytest
from support.runs import checkpoint, equal, metrics, rows, train, trainer_of

from smopd.config import load_config
from smopd.errors import UserError
from smopd.runs.writer import RunFolder, of_all_steps

SMALL = ("train.rollouts=2", "train.micro_batch=2", "rollout.answer_tokens=16", "rollout.middle_tokens=12",
         "data.train_limit=8", "objective.rho=0.5")  # fmt: skip
FREE = (*SMALL, "objective.mask_after=0")  # nothing in it depends on the number of steps


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A finished run of two steps."""
    return train(tmp_path_factory.mktemp("short") / "run", *FREE, "train.steps=2")


def test_a_lengthened_run_is_the_run_that_was_this_long_from_its_beginning(short, tmp_path, caplog):
    run = shutil.copytree(short, tmp_path / "run")
    with caplog.at_level(logging.INFO, "smopd"):
        train(run, *FREE, "train.steps=4", "train.checkpoint_every=3")
    assert "lengthened from 2 to 4 steps; it ends as a run that was this long" in caplog.text
    straight = train(tmp_path / "straight", *FREE, "train.steps=4")
    for name in ("adapter_model", "teacher", "optimizer"):
        assert equal(checkpoint(run, 4, name), checkpoint(straight, 4, name)), name
    assert not equal(checkpoint(run, 4), checkpoint(short, 2))
    assert (run / "metrics.jsonl").read_bytes() == (straight / "metrics.jsonl").read_bytes()
    for step in range(1, 5):
        name = f"rollouts/step-{step:06d}.jsonl"
        assert (run / name).read_bytes() == (straight / name).read_bytes()
    assert load_config(run / "config.toml").train.steps == 4
    changed = {"train.steps": [2, 4], "train.checkpoint_every": [10, 3]}
    assert [row["changed"] for row in rows(run / "starts.jsonl")] == [changed]
    # Killed before its first new checkpoint, it still knows the old one as its own.
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(short / "checkpoints", run / "checkpoints")
    assert trainer_of(run, *FREE, "train.steps=4", "train.checkpoint_every=3").step == 2
    assert len(metrics(run)) == 2


def test_what_depends_on_all_steps_is_said(short, tmp_path, caplog):
    assert of_all_steps(load_config("pocket", ["train.steps=80"]), 40) == [
        "objective.mask_after = 0.33 is a share of all steps: 13.2 steps until now, 26.4 now"
    ]
    assert of_all_steps(load_config("pocket", ["train.steps=80"], "baseline"), 40) == []  # no mask
    (falls,) = of_all_steps(load_config("pocket", ["optim.schedule=cosine", "objective.mask_after=0"]), 20)
    assert falls.startswith("optim.schedule = cosine falls to zero at the last step: until now at step 20")
    for method, setting in (("reopold", "objective.phase"), ("ogls-sd", "objective.ramp")):
        (line,) = of_all_steps(load_config("pocket", [], method), 20)
        assert line.startswith(f"{setting} = 0.333 is a share of all steps")
    run = shutil.copytree(short, tmp_path / "run")
    with caplog.at_level(logging.INFO, "smopd"):
        folder = RunFolder(run, load_config("pocket", [*FREE, "train.steps=4"]))
        assert load_config(run / "config.toml").train.steps == 2  # looking changes nothing
        folder.begin()
        folder.begin()
    assert caplog.text.count("lengthened from 2 to 4 steps") == 1
    assert len(rows(run / "starts.jsonl")) == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.steps=1", "train.steps: 2 in the run folder, 1 now: a run can be lengthened, not shortened"),
        ("optim.lr=1e-5", "optim.lr: 0.0004 in the run folder, 1e-05 now"),
        ("train.rollouts=3", "train.rollouts: 2 in the run folder, 3 now"),
        ("train.eval_limit=7", "train.eval_limit: 50 in the run folder, 7 now"),
        ("objective.mask_after=0.5", "objective.mask_after: 0.0 in the run folder, 0.5 now"),
    ],
)
def test_everything_else_is_another_run(short, setting, message):
    before = (short / "config.toml").read_bytes()
    with pytest.raises(UserError) as error:
        RunFolder(short, load_config("pocket", [*FREE, "train.steps=2", setting]))
    assert message in str(error.value)
    assert (short / "config.toml").read_bytes() == before


def test_a_run_that_its_patience_ended_says_how_it_goes_on(smopd, tmp_path, caplog):
    arguments = ["train", "pocket", "--out", "r", "--json"]
    for setting in (
        *FREE,
        "train.eval_every=1",
        "train.eval_limit=2",
        "eval.tokens=4",
        "eval.middle_tokens=4",
    ):
        arguments += ["--set", setting]
    with caplog.at_level(logging.INFO, "smopd"):
        assert smopd(*arguments, "--set", "train.steps=3", "--set", "train.patience=1")[0] == 0
    assert "ended after step 2: no better SHARDED in 1 evaluations (train.patience)" in caplog.text
    assert smopd(*arguments, "--set", "train.steps=3", "--set", "train.patience=0")[0] == 0
    assert [row["step"] for row in metrics(tmp_path / "r")] == [1, 2, 3]

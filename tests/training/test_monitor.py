"""Evaluation while training: recorded, resumed, the best checkpoint kept, an early stop, trackers."""

import pytest
from accelerate.tracking import GeneralTracker, on_main_process
from support.runs import trainer_of

from smopd.errors import UserError
from smopd.evaluation import metrics
from smopd.models.adapter_files import checkpoints
from smopd.training import monitor
from smopd.training.loop import Stopped

SETTINGS = ["train.steps=4", "train.rollouts=2", "train.micro_batch=2", "rollout.middle_tokens=8",
            "rollout.answer_tokens=12", "lora.r=4", "lora.alpha=8", "eval.tokens=12", "eval.middle_tokens=8",
            "train.eval_every=1", "train.eval_limit=4", "train.keep_checkpoints=1",
            "train.checkpoint_every=4"]  # fmt: skip


def trainer(path, *more):
    return trainer_of(path, *SETTINGS, *more)


def given(monkeypatch, values):
    """SHARDED accuracies as the test wants them, in order; the conversations are really played."""
    left = list(values)

    def summarise(outcomes):
        summary = metrics.summarise(outcomes)
        assert {view: v["total"] for view, v in summary["views"].items()} == {"sharded": 4, "full": 4}
        summary["views"]["sharded"]["accuracy"] = left.pop(0)
        return summary

    monkeypatch.setattr(monitor, "summarise", summarise)


ACCURACIES = [0.25, 0.75, 0.5, 0.75]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run evaluated after every step."""
    run = trainer(tmp_path_factory.mktemp("monitor") / "whole")
    with pytest.MonkeyPatch.context() as patch:
        given(patch, ACCURACIES)
        run.train()
    return run.folder


def test_the_best_checkpoint_is_kept_beside_the_newest(whole):
    assert whole.best() == (2, 0.75)  # the earlier of equal ones
    assert [c.name for c in checkpoints(whole.path)] == ["step-000002", "step-000004"]
    rows = whole.evaluations()
    assert [(r["step"], r["value"]) for r in rows if r["metric"] == "sharded"] == [*enumerate(ACCURACIES, 1)]
    assert len([r for r in rows if r["metric"] == "full"]) == 4


def test_it_stops_early_when_nothing_gets_better(tmp_path, monkeypatch):
    given(monkeypatch, [0.5, 0.25, 0.5])
    run = trainer(tmp_path / "r", "train.patience=2")
    run.train()
    assert run.step == 3
    assert [c.name for c in checkpoints(run.folder.path)] == ["step-000001", "step-000003"]
    again = trainer(tmp_path / "r", "train.patience=2")  # a finished run stays finished
    again.train()
    assert again.step == 3


def test_an_evaluation_that_was_cut_off_is_made_up_for(whole, tmp_path, monkeypatch):
    run, real = trainer(tmp_path / "cut"), monitor.evaluate

    def evaluate(*args):
        if run.step == 2:
            raise KeyboardInterrupt
        return real(*args)

    given(monkeypatch, ACCURACIES)
    monkeypatch.setattr(monitor, "evaluate", evaluate)
    with pytest.raises(Stopped, match="stopped after step 2"):
        run.train()
    assert [r["step"] for r in run.folder.evaluations()] == [1, 1]
    monkeypatch.setattr(monitor, "evaluate", real)
    trainer(tmp_path / "cut").train()
    for name in ("evaluations.jsonl", "metrics.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (whole.path / name).read_bytes()


def test_evaluation_changes_nothing_of_the_training(whole, tmp_path):
    trainer(tmp_path / "without", "train.eval_every=0").train()
    for name in ("metrics.jsonl", "checkpoints/step-000004/adapter_model.safetensors"):
        assert (whole.path / name).read_bytes() == (tmp_path / "without" / name).read_bytes()


class Recorder(GeneralTracker):
    """A tracker that remembers."""

    name, requires_logging_directory, instances = "tensorboard", True, []

    def __init__(self, run_name, logging_dir):
        super().__init__()
        self.run_name, self.rows, self.settings, self.finished = run_name, [], {}, False
        Recorder.instances.append(self)

    @property
    def tracker(self):
        return self

    def start(self):
        pass

    @on_main_process
    def store_init_configuration(self, values):
        self.settings = values

    @on_main_process
    def log(self, values, step=None):
        self.rows.append((step, values))

    @on_main_process
    def finish(self):
        self.finished = True


def test_trackers_get_settings_steps_and_evaluations_and_are_off_by_default(tmp_path, monkeypatch):
    monkeypatch.setitem(monitor.LOGGER_TYPE_TO_CLASS, "tensorboard", Recorder)
    monkeypatch.setattr("smopd.training.check.find_spec", lambda name: True)
    trainer(tmp_path / "off", "train.steps=1", "train.eval_every=0").train()
    assert not Recorder.instances
    trainer(tmp_path / "on", "train.steps=2", 'train.trackers=["tensorboard"]').train()
    (tracker,) = Recorder.instances
    assert tracker.run_name == "on"
    assert tracker.settings["optim.lr"] > 0
    assert [s for s, row in tracker.rows if "loss" in row] == [1, 2]
    assert [s for s, row in tracker.rows if "eval/sharded" in row] == [1, 2]
    assert tracker.finished


def test_a_tracker_that_is_not_installed_is_named(tmp_path, monkeypatch):
    class Missing(Recorder):
        def start(self):
            raise ModuleNotFoundError("No module named 'tensorboard'")

    monkeypatch.setitem(monitor.LOGGER_TYPE_TO_CLASS, "tensorboard", Missing)
    monkeypatch.setattr("smopd.training.check.find_spec", lambda name: True)
    with pytest.raises(UserError, match=r"train\.trackers: tensorboard is not installed.*smopd\[track\]"):
        trainer(tmp_path / "r", 'train.trackers=["tensorboard"]').train()

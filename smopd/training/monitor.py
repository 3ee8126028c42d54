"""Monitor a run while it trains: evaluations every few steps, early stopping, trackers."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from smopd.chat.messages import View
from smopd.chat.template import refuse_too_long
from smopd.config import Config
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, evaluate, prepared_examples
from smopd.evaluation.metrics import summarise
from smopd.rollout import Driver
from smopd.rollout.assembly import evaluation_sampling
from smopd.runs.writer import RunFolder
from smopd.training.processes import Processes

VIEWS: tuple[View, ...] = ("sharded", "full")  # the first decides which checkpoint is best


class Monitor:
    def __init__(
        self, config: Config, folder: RunFolder, driver: Driver, processes: Processes,
        sampling: Callable[[int], AbstractContextManager[None]],
    ) -> None:  # fmt: skip
        """Inside `sampling(step)` the engine of the run's `driver` samples from the student after a step."""
        self.config, self.settings, self.folder, self.processes = config, config.train, folder, processes
        self.sampling = sampling
        every, limit = self.settings.eval_every, self.settings.eval_limit
        self.examples = prepared_examples(config, "eval")[:limit] if every else []
        refuse_too_long(driver.renderer, self.examples, VIEWS)
        limits = evaluation_sampling(config), config.eval.middle_tokens
        self.driver = Driver(driver.engine, driver.renderer, *limits, config.chat.history)
        self.trackers: list[GeneralTracker] = []

    def __enter__(self) -> "Monitor":
        path = self.folder.path
        for name in self.settings.trackers if self.processes.first else []:
            kind: Any = LOGGER_TYPE_TO_CLASS[name]
            local = kind.requires_logging_directory  # either kind shows the run under its folder's name
            tracker = kind(path.name, str(path / "tracking")) if local else kind("smopd", name=path.name)
            try:
                tracker.start()
            except ImportError as error:
                problem = f"{name} is not installed ({error}): pip install 'smopd[track]'"
                raise UserError(f"train.trackers: {problem}") from None
            settings = flatten(self.config.model_dump()).items()
            plain = (bool, int, float, str)
            tracker.store_init_configuration({k: v if isinstance(v, plain) else str(v) for k, v in settings})
            self.trackers.append(tracker)
        return self

    def __exit__(self, *error: object) -> None:
        for tracker in self.trackers:
            tracker.finish()

    def log(self, row: dict[str, Any]) -> None:
        numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
        for tracker in self.trackers:
            tracker.log(numbers, step=row["step"])

    def due(self, step: int, asked: bool = False) -> bool:
        """Whether an evaluation follows this step. `asked` counts only in a run that evaluates at all."""
        every = self.settings.eval_every
        return bool(every) and step > 0 and (asked or step % every == 0)

    def catch_up(self, step: int) -> None:
        """Repeat the evaluation after this step if the run was stopped during it."""
        done = [row["step"] for row in self.folder.evaluations()].count(step) == len(VIEWS)
        if self.due(step) and not self.processes.broadcast(done):
            self.evaluate(step)

    def evaluate(self, step: int) -> dict[str, float]:
        """Evaluate, each process its share; return accuracy by view, empty except on the first process."""
        examples = self.processes.share(self.examples)
        with self.sampling(step):
            share = evaluate(self.driver, examples, VIEWS, 1, self.config.seed, self.config.eval.batch)
        outcomes: list[Outcome] = self.processes.gather(share)
        if not self.processes.first:
            return {}
        views = summarise(outcomes)["views"]
        accuracy: dict[str, float] = {view: views[view]["accuracy"] for view in VIEWS}
        for view in VIEWS:
            self.folder.record_evaluation(step, view, accuracy[view])
        self.folder.prune(self.settings.keep_checkpoints)
        self.log({"step": step, **{f"eval/{view}": value for view, value in accuracy.items()}})
        return accuracy

    def enough(self) -> bool:
        """Whether to stop early: `train.patience` evaluations have passed since the best one."""
        if not self.settings.patience:
            return False
        rows = self.folder.evaluations()
        values = self.processes.broadcast([row["value"] for row in rows if row["metric"] == VIEWS[0]])
        best = values.index(max(values)) if values else 0
        return len(values) - 1 - best >= self.settings.patience

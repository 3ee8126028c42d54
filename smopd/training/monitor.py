"""Watching a run while it trains: evaluations every few steps, the best of them, early stopping, trackers."""

from typing import TYPE_CHECKING, Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker

from smopd.chat.views import View
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, evaluate
from smopd.evaluation.metrics import summarise
from smopd.evaluation.prepare import prepared_examples
from smopd.rollout import Driver
from smopd.rollout.assembly import evaluation_sampling
from smopd.rollout.lengths import refuse_too_long

if TYPE_CHECKING:
    from smopd.training.loop import Trainer

VIEWS: tuple[View, ...] = ("sharded", "full")  # the first decides which checkpoint is best


class Monitor:
    """The evaluations and trackers of one run."""

    def __init__(self, trainer: "Trainer") -> None:
        self.trainer, self.settings = trainer, trainer.config.train
        every, limit = self.settings.eval_every, self.settings.eval_limit
        self.examples = prepared_examples(trainer.config, "eval")[:limit] if every else []
        refuse_too_long(trainer.renderer, self.examples, VIEWS)
        self.trackers: list[GeneralTracker] = []

    def __enter__(self) -> "Monitor":
        config, folder = self.trainer.config, self.trainer.folder.path
        for name in self.settings.trackers if self.trainer.processes.first else []:
            kind: Any = LOGGER_TYPE_TO_CLASS[name]
            # The folder is the run: its name is what one looks for among many.
            local = kind.requires_logging_directory
            made = kind(folder.name, str(folder / "tracking")) if local else kind("smopd", name=folder.name)
            try:
                made.start()
            except ImportError as error:
                problem = f"{name} is not installed ({error}): pip install 'smopd[track]'"
                raise UserError(f"train.trackers: {problem}") from None
            settings = flatten(config.model_dump()).items()
            plain = (bool, int, float, str)
            made.store_init_configuration({k: v if isinstance(v, plain) else str(v) for k, v in settings})
            self.trackers.append(made)
        return self

    def __exit__(self, *error: object) -> None:
        for tracker in self.trackers:
            tracker.finish()

    def log(self, row: dict[str, Any]) -> None:
        """Pass one step's row on."""
        numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
        for tracker in self.trackers:
            tracker.log(numbers, step=row["step"])

    def due(self, step: int, asked: bool = False) -> bool:
        """Whether an evaluation follows this step; one that is `asked` for needs a run that evaluates."""
        every = self.settings.eval_every
        return bool(every) and step > 0 and (asked or step % every == 0)

    def catch_up(self) -> None:
        """The evaluation that a run was stopped in."""
        step = self.trainer.step
        done = [row["step"] for row in self.trainer.folder.evaluations()].count(step) == len(VIEWS)
        if self.due(step) and not self.trainer.processes.broadcast(done):
            self.evaluate(step)

    def evaluate(self, step: int) -> dict[str, float]:
        """Play the examples, each process its share, and keep the result and perhaps the checkpoint.

        The accuracy by view, on the first process.
        """
        trainer, settings = self.trainer, self.trainer.config.eval
        limits = evaluation_sampling(trainer.config), settings.middle_tokens
        driver = Driver(trainer.engine, trainer.renderer, *limits, trainer.config.chat.history)
        examples = trainer.processes.share(self.examples)
        trainer.model.eval()
        with trainer.sampling(step):
            share = evaluate(driver, examples, VIEWS, 1, trainer.config.seed, settings.batch)
        outcomes: list[Outcome] = trainer.processes.gather(share)
        if not trainer.processes.first:
            return {}
        views = summarise(outcomes)["views"]
        accuracy: dict[str, float] = {view: views[view]["accuracy"] for view in VIEWS}
        for view in VIEWS:
            trainer.folder.record_evaluation(step, view, accuracy[view])
        trainer.folder.prune(self.settings.keep_checkpoints)
        self.log({"step": step, **{f"eval/{view}": value for view, value in accuracy.items()}})
        return accuracy

    def enough(self) -> bool:
        """Whether the last evaluations brought nothing better, as often as the run's patience allows."""
        if not self.settings.patience:
            return False
        rows = self.trainer.folder.evaluations()
        values = self.trainer.processes.broadcast([row["value"] for row in rows if row["metric"] == VIEWS[0]])
        best = values.index(max(values)) if values else 0
        return len(values) - 1 - best >= self.settings.patience

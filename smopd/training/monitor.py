"""Watching a run while it trains: evaluations every few steps, early stopping, trackers, turn accuracy."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker
from peft import PeftModel

from smopd.chat.views import View
from smopd.config import Config
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, evaluate, expected_so_far, told_so_far
from smopd.evaluation.metrics import summarise
from smopd.evaluation.prepare import prepared_examples
from smopd.models.adapters import teacher_weights
from smopd.objective import Plan
from smopd.rollout import Driver, Rollout
from smopd.rollout.assembly import evaluation_sampling
from smopd.rollout.hf import HFEngine
from smopd.rollout.lengths import refuse_too_long
from smopd.runs.writer import RunFolder
from smopd.seeds import rng
from smopd.training.processes import Processes
from smopd.training.sharding import unsharded
from smopd.verify.verifiers import verify_all

VIEWS: tuple[View, ...] = ("sharded", "full")  # the first decides which checkpoint is best
TEACHER_REPLIES = 16  # at a time: about as many as three conversations have


class Monitor:
    def __init__(
        self, config: Config, folder: RunFolder, driver: Driver, processes: Processes,
        sampling: Callable[[int], AbstractContextManager[None]],
    ) -> None:  # fmt: skip
        """`driver` is the run's; inside `sampling(step)` its engine samples from the student after a step."""
        self.config, self.settings, self.folder, self.processes = config, config.train, folder, processes
        self.sampling = sampling
        every, limit = self.settings.eval_every, self.settings.eval_limit
        self.examples = prepared_examples(config, "eval")[:limit] if every else []
        refuse_too_long(driver.renderer, self.examples, VIEWS)
        limits = evaluation_sampling(config), config.eval.middle_tokens
        self.driver = Driver(driver.engine, driver.renderer, *limits, config.chat.history)
        self.trackers: list[GeneralTracker] = []

    def __enter__(self) -> "Monitor":
        folder = self.folder.path
        for name in self.settings.trackers if self.processes.first else []:
            kind: Any = LOGGER_TYPE_TO_CLASS[name]
            # The folder is the run: its name is what one looks for among many.
            local = kind.requires_logging_directory
            tracker = (
                kind(folder.name, str(folder / "tracking")) if local else kind("smopd", name=folder.name)
            )
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
        """Whether an evaluation follows this step; one that is `asked` for needs a run that evaluates."""
        every = self.settings.eval_every
        return bool(every) and step > 0 and (asked or step % every == 0)

    def catch_up(self, step: int) -> None:
        """Make the evaluation after this step if the run was stopped in it."""
        done = [row["step"] for row in self.folder.evaluations()].count(step) == len(VIEWS)
        if self.due(step) and not self.processes.broadcast(done):
            self.evaluate(step)

    def evaluate(self, step: int) -> dict[str, float]:
        """Play the examples, each process its share; the accuracy by view, on the first process."""
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
        """Whether the last evaluations brought nothing better, as often as the run's patience allows."""
        if not self.settings.patience:
            return False
        rows = self.folder.evaluations()
        values = self.processes.broadcast([row["value"] for row in rows if row["metric"] == VIEWS[0]])
        best = values.index(max(values)) if values else 0
        return len(values) - 1 - best >= self.settings.patience


@dataclass(frozen=True)
class TurnAccuracy:
    """Are middle replies right for what was told so far? Of the student's, which `driver` played, and now and
    then of the teacher's own, in the context it judges the student from; only in tasks that know the answer.
    """

    config: Config
    plan: Plan
    model: PeftModel
    driver: Driver
    processes: Processes

    def measure(self, all_rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """Shares of right middle replies, nothing where none can be judged. Collective."""
        talks = [c for rollout in self.processes.share(all_rollouts) for c in rollout.conversations]
        expected = [(talk.whole - 1, expected_so_far(talk)) for talk in talks]
        pairs = [pair for last, by_turn in expected for turn, pair in by_turn.items() if turn < last]
        verdicts = {"turn_accuracy": [verdict.correct for verdict in verify_all(pairs)]}
        every = self.config.train.teacher_every
        if every and step % every == 0:
            verdicts["teacher/turn_accuracy"] = self._teacher_verdicts(all_rollouts, step)
        gathered = {name: self.processes.gather(right) for name, right in verdicts.items()}
        return {name: sum(right) / len(right) for name, right in gathered.items() if right}

    def _teacher_verdicts(self, all_rollouts: Sequence[Rollout], step: int) -> list[bool]:
        """On the teacher's own replies to some middle turns of the step, sampled like the student's."""
        places = [(r.example, t, r.sample) for r in all_rollouts for t in range(len(r.example.shards) - 1)]
        known = [(*place, partial) for place in places if (partial := told_so_far(*place[:2]))]
        draw = (self.config.seed, "teacher's turns", step)
        chosen = self.processes.share(rng(*draw).sample(known, min(TEACHER_REPLIES, len(known))))
        # Whatever samples the student's replies, the teacher is here, beside the weights that are trained.
        ends, batch = self.driver.renderer.end_ids, self.config.rollout.batch
        engine = HFEngine(self.model, ends, batch, cache_mb=0, static=False)
        driver = replace(self.driver, engine=engine, clean=self.plan.clean)
        with unsharded(self.model), teacher_weights(self.model, "ema"):
            replies = driver.answer_clean([(e, turn, sample) for e, turn, sample, _ in chosen], draw)
        pairs = [(partial, reply.text) for (*_, partial), reply in zip(chosen, replies, strict=True)]
        return [verdict.correct for verdict in verify_all(pairs)]

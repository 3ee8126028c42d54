"""`benchmarks methods`: whole training steps of the pocket recipe, method by method: tokens sampled, contexts
the teacher scored, rows multiplied with the head, CPU seconds.

Every method gets the same examples; group methods play each of them several times. The steps are taken at 60%
of a run, where schedules and masks have begun.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.measure import Case, Work, measure
from smopd.config import load_config
from smopd.machine import describe_cpu
from smopd.methods import DEFAULT, METHODS
from smopd.objective.scoring_requests import scoring_requests
from smopd.objective.tokens import Moment
from smopd.rollout.play import Peers, Rollout
from smopd.runs.writer import RunFolder
from smopd.scoring.passes import body_and_head
from smopd.tracking import Track, quiet
from smopd.training.loop import Trainer

RUN, FIRST = 100, 60  # steps of the run that is imitated, and the one that warms up
COSTS = ("sampled", "contexts", "products", "seconds")


@dataclass(frozen=True)
class Methods:
    """How much each method computes."""

    examples: int = 8
    steps: int = 3
    reply: int = 64  # token limit of every reply


class HeadRows(TorchDispatchMode):
    """Counts rows multiplied with the head: two products for the logits, one for every gradient."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.vocabulary, self.width = shape
        self.rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.mm:
            (rows, k), m = args[0].shape, args[1].shape[1]
            if {k, m} == {self.vocabulary, self.width}:
                self.rows += rows
        return func(*args, **(kwargs or {}))


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work; a variant is a method's name."""
    chosen = Methods(**settings)
    folder = TemporaryDirectory(prefix="smopd-bench-")
    config = load_config(
        "pocket",
        [f"train.steps={RUN}", f"train.rollouts={chosen.examples}", "train.save_rollouts=false",
         f"rollout.middle_tokens={chosen.reply}", f"rollout.answer_tokens={chosen.reply}"],
        variant,
    )  # fmt: skip
    trainer = Trainer(config, RunFolder(Path(folder.name) / "run", config))
    played: list[list[Rollout]] = []
    verify = trainer.player.verify_and_grade

    def verify_and_grade(conversations: Any) -> list[Rollout]:
        played.append(verify(conversations))
        return played[-1]

    trainer.player.verify_and_grade = verify_and_grade  # type: ignore[method-assign,assignment]

    def take(steps: Sequence[int]) -> None:
        for step in steps:
            trainer.take_step(step, nullcontext)  # nobody interrupts a benchmark

    def facts(_: Any) -> dict[str, Any]:
        measured = [_counts(trainer, rollouts, step) for step, rollouts in enumerate(played[1:], FIRST + 1)]
        head, score = HeadRows(body_and_head(trainer.model)[1].shape), trainer.scorer.score

        def counted(*args: Any) -> Any:
            with head:
                return score(*args)

        trainer.scorer.score = counted  # type: ignore[method-assign,assignment]
        take([FIRST + 1])  # the same examples and seeds as the first one measured
        folder.cleanup()
        means = {name: fmean(counts[name] for counts in measured) for name in measured[0]}
        return {**means, "products": head.rows}

    return Work(lambda: take([FIRST]), lambda: take(range(FIRST + 1, FIRST + 1 + chosen.steps)), facts)


def _counts(trainer: Trainer, rollouts: list[Rollout], step: int) -> dict[str, float]:
    moment = Moment(step, RUN, (trainer.config.seed, step))
    replies = [rollout.replies() for rollout in rollouts]
    _, units, _ = scoring_requests(replies, trainer.plan, moment, Peers(rollouts, moment.draw, moment.done))
    passes = 2 if trainer.plan.needs_whole_step else 1
    return {
        "rollouts": len(rollouts),
        "sampled": sum(len(reply.tokens) for of_rollout in replies for reply in of_rollout),
        "contexts": passes * sum(len(unit.contexts) + len(unit.auxiliary[1]) for unit in units),
        "passes": passes,
    }


def report(
    settings: Methods, reps: int, names: Sequence[str] = tuple(METHODS), track: Track = quiet
) -> dict[str, Any]:
    """Measure the methods; ratios are to SMOPD's own numbers."""
    chosen = list(dict.fromkeys([DEFAULT, *names]))
    rows = measure([Case(name, "methods", name, asdict(settings)) for name in chosen], reps, track)
    for row in rows:
        row["seconds"] /= settings.steps
        row["spread"] = [seconds / settings.steps for seconds in row["spread"]]
        row["ratios"] = {key: row[key] / rows[0][key] for key in COSTS}
    notes = [
        f"a step of {settings.examples} examples, pocket recipe; ratios to {DEFAULT}",
        "sampled: reply tokens; contexts: what teachers scored, twice where the step is scored once before; "
        "products: rows multiplied with the head; s: CPU seconds of the whole step",
    ]
    run = {"bench": "methods", "machine": describe_cpu(1), "settings": asdict(settings), "reps": reps}
    return run | {"results": rows, "notes": notes}

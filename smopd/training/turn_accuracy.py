"""Turn accuracy while training: are middle replies right for what was told so far? Of the student's replies,
which are there anyway, and now and then of the teacher's own, in the context it judges the student from.

Only tasks that know what a middle reply should say are asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peft import PeftModel

from smopd.config import Config
from smopd.evaluation.evaluate import expected_so_far, told_so_far
from smopd.models.adapters import teacher_weights
from smopd.objective.plan import Plan
from smopd.rollout import Conversation, Driver
from smopd.rollout.hf import HFEngine
from smopd.rollout.play import Rollout
from smopd.seeds import rng
from smopd.training.processes import Processes
from smopd.training.sharding import unsharded
from smopd.verify.verifiers import verify_all

TEACHER_REPLIES = 16  # at a time: about as many as three conversations have


@dataclass(frozen=True)
class TurnAccuracy:
    """Measures it for the steps of one run; `driver` is the one that plays the student."""

    config: Config
    plan: Plan
    model: PeftModel
    driver: Driver
    processes: Processes

    def measure(self, all_rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """Shares of right middle replies, nothing where none can be judged. Collective."""
        rollouts = self.processes.share(all_rollouts)
        verdicts = {"turn_accuracy": _student_verdicts([c for r in rollouts for c in r.conversations])}
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


def _student_verdicts(conversations: Sequence[Conversation]) -> list[bool]:
    """On middle replies whose right answer is known."""
    expected = [(talk.whole - 1, expected_so_far(talk)) for talk in conversations]
    pairs = [pair for last, by_turn in expected for turn, pair in by_turn.items() if turn < last]
    return [verdict.correct for verdict in verify_all(pairs)]

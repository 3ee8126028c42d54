"""The first half of a step: draw examples, play the plan's conversations, have them judged and graded. Each
process plays its share; which rollouts there are does not depend on how many processes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from peft import PeftModel

from smopd.config import Config
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import expected_so_far, told_so_far
from smopd.models.adapters import teacher_weights
from smopd.objective import Plan
from smopd.objective.grades import grade_groups
from smopd.rollout import Conversation, Driver, Play, Rollout
from smopd.rollout.hf import HFEngine
from smopd.rollout.play import drawn_plays, samples_of
from smopd.seeds import rng
from smopd.training.processes import Processes
from smopd.training.sharding import unsharded
from smopd.verify import tasks
from smopd.verify.verdict import Verdict
from smopd.verify.verifiers import verify_all

TEACHER_REPLIES = 16  # of the teacher's own at a time: about as many as three conversations have
Played = list[tuple[Example, int, list[tuple[Play, Conversation]]]]  # example, sample, its conversations


@dataclass
class StepPlayer:
    config: Config
    plan: Plan
    examples: list[Example]
    driver: Driver
    processes: Processes

    def play(self, step: int) -> Played:
        """Sample our share of this step's conversations."""
        seed = self.config.seed
        items = self.processes.share(samples_of(self.drawn(step), self.plan.samples))
        chosen = [drawn_plays(self.plan.plays, (seed, step), example, sample) for example, sample in items]
        played: Played = [(example, sample, []) for example, sample in items]
        for play in self.plan.plays:
            now = [item for item, plays in zip(played, chosen, strict=True) if play in plays]
            examples, samples = [example for example, _, _ in now], [sample for _, sample, _ in now]
            most = play.turns_at(step)
            if play.reference:
                conversations = self.driver.recite(examples, [reference_reply(e) for e in examples])
            else:
                conversations = self.driver.play(examples, play.view, (seed, "rollout", step), samples, most)
            for (_, _, into), conversation in zip(now, conversations, strict=True):
                conversation.context = None  # over; it would take its tokenizer along to other processes
                into.append((play, conversation))
        return played

    def verify_and_grade(self, played: Played) -> list[Rollout]:
        """The rollouts of all processes, with verdicts and advantages. Collective."""
        # A conversation that was cut short has no answer to judge.
        whole = [c for _, _, plays in played for play, c in plays if play.verify and not c.cut]
        verdicts = iter(verify_all([(c.example, c.final_text) for c in whole]))
        rollouts = []
        for example, sample, plays in played:
            judged = tuple(next(verdicts) if p.verify and not c.cut else None for p, c in plays)
            talks, repeat = tuple(c for _, c in plays), sample // self.plan.samples
            rollouts.append(Rollout(example, talks, judged, sample, repeat=repeat))
        all_rollouts = self.processes.gather(rollouts)
        return grade_groups(all_rollouts, self.plan.grade) if self.plan.grade else all_rollouts

    def drawn(self, step: int) -> list[Example]:
        """The step's examples: a fresh shuffle every epoch, batches running through it without a gap."""
        count, batch = len(self.examples), self.config.train.rollouts
        places = range((step - 1) * batch, step * batch)
        return [self.examples[_shuffle_order(count, self.config.seed, p // count)[p % count]] for p in places]

    def turn_accuracy(self, all_rollouts: Sequence[Rollout], model: PeftModel, step: int) -> dict[str, float]:
        """Shares of middle replies that are right for what was told so far, in tasks that know it: of the
        student's and, now and then, of the teacher's own, in the context it judges from. Collective.
        """
        talks = [c for rollout in self.processes.share(all_rollouts) for c in rollout.conversations]
        expected = [(talk.whole - 1, expected_so_far(talk)) for talk in talks]
        pairs = [pair for last, by_turn in expected for turn, pair in by_turn.items() if turn < last]
        verdicts = {"turn_accuracy": verify_all(pairs)}
        every = self.config.train.teacher_every
        if every and step % every == 0:
            verdicts["teacher/turn_accuracy"] = self._teacher_verdicts(all_rollouts, model, step)
        right = {k: self.processes.gather([v.correct for v in judged]) for k, judged in verdicts.items()}
        return {name: sum(correct) / len(correct) for name, correct in right.items() if correct}

    def _teacher_verdicts(
        self, all_rollouts: Sequence[Rollout], model: PeftModel, step: int
    ) -> list[Verdict]:
        """On the teacher's own replies to some middle turns of the step, sampled like the student's."""
        places = [(r.example, t, r.sample) for r in all_rollouts for t in range(len(r.example.shards) - 1)]
        known = [(*place, partial) for place in places if (partial := told_so_far(*place[:2]))]
        draw = (self.config.seed, "teacher's turns", step)
        chosen = self.processes.share(rng(*draw).sample(known, min(TEACHER_REPLIES, len(known))))
        # Whatever samples the student's replies, the teacher is here, beside the weights that are trained.
        ends, batch = self.driver.renderer.end_ids, self.config.rollout.batch
        engine = HFEngine(model, ends, batch, cache_mb=0, static=False)
        driver = replace(self.driver, engine=engine, clean=self.plan.clean)
        with unsharded(model), teacher_weights(model, "ema"):
            replies = driver.answer_clean([(e, turn, sample) for e, turn, sample, _ in chosen], draw)
        pairs = [(partial, reply.text) for (*_, partial), reply in zip(chosen, replies, strict=True)]
        return verify_all(pairs)


@lru_cache(maxsize=2)
def _shuffle_order(count: int, seed: int, epoch: int) -> list[int]:
    order = list(range(count))
    rng(seed, "order", epoch).shuffle(order)
    return order


def reference_reply(example: Example) -> str:
    """The right reply to the whole task, as the example's task writes it."""
    task = tasks.find(example.task)
    for text in task.reference_replies(example.answer) if task else ():
        return text
    problem = f"tasks of the kind {example.task!r} have no reference replies"
    raise UserError(f"{example.id}: {problem}; train on others, or on sampled replies")

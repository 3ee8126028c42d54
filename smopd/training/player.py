"""The first half of a step: draw examples, play them, verify and grade. Each process plays its share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from peft import PeftModel

from smopd.config import Config
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import expected_so_far, told_so_far
from smopd.models.adapters import teacher_weights
from smopd.objective import Plan
from smopd.objective.grades import grade_groups
from smopd.rollout import Conversation, Driver, Play, Rollout
from smopd.rollout.driver import ConversationRequest
from smopd.rollout.hf import HFEngine
from smopd.rollout.play import drawn_plays, samples_of
from smopd.seeds import rng
from smopd.training.processes import Processes
from smopd.training.sharding import unsharded
from smopd.verify import tasks
from smopd.verify.verdict import Verdict
from smopd.verify.verifiers import verify_all

TEACHER_REPLIES = 16  # sampled from the teacher at a time: about as many as three conversations have
# For each rollout of a step its conversations, each with its play's index in the plan.
StepConversations = list[list[tuple[int, Conversation]]]
Played = list[tuple[Example, int, list[tuple[Play, Conversation]]]]  # example, sample, its conversations


@dataclass
class _Job:
    """A conversation of a step; without a request it recites the reference instead of sampling."""

    step: int
    place: int  # index of its rollout in this process's share of the step
    play: int  # index in the plan
    example: Example
    request: ConversationRequest | None


@dataclass
class StepPlayer:
    config: Config
    plan: Plan
    examples: list[Example]
    driver: Driver
    processes: Processes

    def play(self, step: int) -> Played:
        (talks,) = self.play_block([step])
        return self.pair_up(step, talks)

    def pair_up(self, step: int, talks: StepConversations) -> Played:
        """Combine this process's conversations of a step with their examples and plays."""
        plays = self.plan.plays
        pairs = zip(self.items(step), talks, strict=True)
        return [(e, sample, [(plays[k], c) for k, c in of_one]) for (e, sample), of_one in pairs]

    def play_block(self, steps: Sequence[int]) -> list[StepConversations]:
        """Sample this process's share of the conversations of each step."""
        jobs = [job for step in steps for job in self._jobs(step)]
        # A single step sampled with the trained module runs in rounds, play by play, to repeat older runs.
        continuous = len(steps) > 1 or not self.driver.engine.traits.in_place
        by_play = [[job for job in jobs if job.play == k] for k in range(len(self.plan.plays))]
        played: dict[int, StepConversations] = {step: [[] for _ in self.items(step)] for step in steps}
        for some in [jobs] if continuous else by_play:
            sampled = iter(self.driver.play_all([job.request for job in some if job.request], continuous))
            for job in some:
                example = job.example
                talk = next(sampled) if job.request else self.driver.recite(example, reference_reply(example))
                talk.context = None  # no longer needed; gathering it would pickle the tokenizer
                played[job.step][job.place].append((job.play, talk))
        return list(played.values())

    def _jobs(self, step: int) -> Iterator[_Job]:
        """List the conversations of this process's share of a step, play by play."""
        seed, items, plays = self.config.seed, self.items(step), self.plan.plays
        draw = (seed, "rollout", step)
        chosen = [drawn_plays(plays, (seed, step), example, sample) for example, sample in items]
        for number, play in enumerate(plays):
            for place, (example, sample) in enumerate(items):
                if play in chosen[place]:
                    request = ConversationRequest(example, play.view, draw, sample, play.turns_at(step))
                    yield _Job(step, place, number, example, None if play.reference else request)

    def of_all(self, step: int) -> list[tuple[Example, int]]:
        """Example and sample number of every rollout of a step, on all processes."""
        return samples_of(self.drawn(step), self.plan.samples)

    def items(self, step: int) -> list[tuple[Example, int]]:
        """Example and sample number of this process's rollouts."""
        return self.processes.share(self.of_all(step))

    def verify_and_grade(self, played: Played) -> list[Rollout]:
        """Return the rollouts of all processes, with verdicts and advantages. Collective."""
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
        """The step's examples: a new shuffle every epoch; a batch may span two epochs."""
        count, batch, cluster = len(self.examples), self.config.train.rollouts, self.config.data.cluster
        prompts = tuple(example.system for example in self.examples) if cluster > 1 else ()
        order = partial(_shuffle_order, count, self.config.seed, prompts=prompts, cluster=cluster)
        places = range((step - 1) * batch, step * batch)
        return [self.examples[order(place // count)[place % count]] for place in places]

    def turn_accuracy(self, all_rollouts: list[Rollout], model: PeftModel, step: int) -> dict[str, float]:
        """Turn accuracy of the student and, every `train.teacher_every` steps, of the teacher. Collective."""
        talks = [c for rollout in self.processes.share(all_rollouts) for c in rollout.conversations]
        expected = [(talk.whole - 1, expected_so_far(talk)) for talk in talks]
        pairs = [pair for last, by_turn in expected for turn, pair in by_turn.items() if turn < last]
        verdicts = {"turn_accuracy": verify_all(pairs)}
        if (every := self.config.train.teacher_every) and step % every == 0:
            verdicts["teacher/turn_accuracy"] = self._teacher_verdicts(all_rollouts, model, step)
        right = {k: self.processes.gather([v.correct for v in judged]) for k, judged in verdicts.items()}
        return {name: sum(correct) / len(correct) for name, correct in right.items() if correct}

    def _teacher_verdicts(self, all_rollouts: list[Rollout], model: PeftModel, step: int) -> list[Verdict]:
        """Let the teacher reply to some of the step's middle turns in its clean context, and verify that."""
        places = [(r.example, t, r.sample) for r in all_rollouts for t in range(len(r.example.shards) - 1)]
        known = [(*place, partial) for place in places if (partial := told_so_far(*place[:2]))]
        draw = (self.config.seed, "teacher's turns", step)
        chosen = self.processes.share(rng(*draw).sample(known, min(TEACHER_REPLIES, len(known))))
        # Whichever engine samples for the student, the teacher's weights are in this process.
        ends, batch = self.driver.renderer.end_ids, self.config.rollout.batch
        engine = HFEngine(model, ends, batch, cache_mb=0, static=False)
        driver = replace(self.driver, engine=engine, clean=self.plan.clean)
        with unsharded(model), teacher_weights(model, "ema"):
            replies = driver.answer_clean([(e, turn, sample) for e, turn, sample, _ in chosen], draw)
        pairs = [(partial, reply.text) for (*_, partial), reply in zip(chosen, replies, strict=True)]
        return verify_all(pairs)


@lru_cache(maxsize=2)
def _shuffle_order(count: int, seed: int, epoch: int, prompts: Sequence[str], cluster: int) -> list[int]:
    """Indices in random order; with `cluster`, up to so many of the same system prompt in a row."""
    order = list(range(count))
    rng(seed, "order", epoch).shuffle(order)
    if cluster == 1:
        return order
    waiting: dict[str, list[int]] = {}
    for index in reversed(order):
        waiting.setdefault(prompts[index], []).append(index)
    clustered = []
    for index in order:
        # Every `cluster`-th index of a prompt stands for itself and for those behind it.
        rest = waiting[prompts[index]]
        if rest and rest[-1] == index:
            clustered += [rest.pop() for _ in range(min(cluster, len(rest)))]
    return clustered


def reference_reply(example: Example) -> str:
    task = tasks.find(example.task)
    for text in task.reference_replies(example.answer) if task else ():
        return text
    problem = f"tasks of the kind {example.task!r} have no reference replies"
    raise UserError(f"{example.id}: {problem}; train on others, or on sampled replies")

"""The first half of a step: draw examples, play the plan's conversations, have them judged and graded.

Each process plays its share; which rollouts there are does not depend on how many processes there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from smopd.config import Config
from smopd.data import Example
from smopd.errors import UserError
from smopd.objective.grades import grade_groups
from smopd.objective.plan import Plan
from smopd.rollout import Conversation, Driver
from smopd.rollout.driver import ConversationRequest
from smopd.rollout.play import Play, Rollout, drawn_plays, samples_of
from smopd.seeds import rng
from smopd.training.processes import Processes
from smopd.verify import tasks
from smopd.verify.verifiers import verify_all

# For each rollout of a step its conversations, with the number of the play.
StepConversations = list[list[tuple[int, Conversation]]]
Played = list[tuple[Example, int, list[tuple[Play, Conversation]]]]  # example, sample, its conversations


@dataclass
class _Job:
    """A conversation of a step, sampled by a request or, without one, recited."""

    step: int
    place: int  # of its rollout in our share of the step
    play: int  # its number in the plan
    example: Example
    request: ConversationRequest | None
    conversation: Conversation | None = None


@dataclass
class StepPlayer:
    """Plays the rollouts of steps with whatever the driver's engine samples from."""

    config: Config
    plan: Plan
    examples: list[Example]
    driver: Driver
    processes: Processes

    def play(self, steps: Sequence[int]) -> list[StepConversations]:
        """Sample our share of the conversations of each of these steps."""
        jobs = [job for step in steps for job in self._jobs(step)]
        # A single step sampled with the trained module keeps to rounds, play by play, as it always has.
        continuous = len(steps) > 1 or not self.driver.engine.traits.in_place
        by_play = [[job for job in jobs if job.play == k] for k in range(len(self.plan.plays))]
        for some in [jobs] if continuous else by_play:
            requests = [job.request for job in some if job.request]
            sampled = iter(self.driver.play_all(requests, continuous))
            for job in some:
                job.conversation = next(sampled) if job.request else self._recite(job.example)
        played: dict[int, StepConversations] = {step: [[] for _ in self.items(step)] for step in steps}
        for job in jobs:
            assert job.conversation is not None
            job.conversation.context = None  # over; it would take its tokenizer along to other processes
            played[job.step][job.place].append((job.play, job.conversation))
        return list(played.values())

    def _jobs(self, step: int) -> list[_Job]:
        """The conversations of our share of a step, play by play."""
        seed, items, plays = self.config.seed, self.items(step), self.plan.plays
        chosen = [drawn_plays(plays, (seed, step), example, sample) for example, sample in items]
        jobs = []
        for number, play in enumerate(plays):
            turns = play.turns_at(step)
            for place, (example, sample) in enumerate(items):
                if play in chosen[place]:
                    draw = (seed, "rollout", step)
                    request = ConversationRequest(example, play.view, draw, sample, turns)
                    jobs.append(_Job(step, place, number, example, None if play.reference else request))
        return jobs

    def _recite(self, example: Example) -> Conversation:
        return self.driver.recite([example], [reference_reply(example)])[0]

    def of_all(self, step: int) -> list[tuple[Example, int]]:
        """Example and sample number of every rollout of a step."""
        return samples_of(self.drawn(step), self.plan.samples)

    def items(self, step: int) -> list[tuple[Example, int]]:
        """Those of our share."""
        return self.processes.share(self.of_all(step))

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

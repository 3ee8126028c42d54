"""Random rollouts for references of whole losses, in float64 and without a model: hidden states are drawn for
every sequence, a leaf with gradient each for the student's, so that two ways to a loss can be compared to
rounding.

A reference is written with `Shown` alone: log-distributions of a reply under a context, and what was played.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from smopd.data import Example
from smopd.objective.loss import RolloutLoss
from smopd.objective.plan import Plan
from smopd.objective.tokens import Moment
from smopd.rollout.driver import Conversation, Turn
from smopd.rollout.engine import Stop
from smopd.rollout.play import Peers, Play, Reply, Rollout, drawn_plays, graded
from smopd.scoring import kernel, plain
from smopd.settings import TrainSettings
from smopd.training import scores
from smopd.training.player import grade_groups
from smopd.training.processes import Processes
from smopd.training.scores import ScoringPath
from smopd.training.step_scoring import StepScorer
from smopd.verify.verdict import Verdict

VOCABULARY, WIDTH = 137, 6


class Words:
    """Stands for a renderer: messages as token ids, each message a few, by its text."""

    end_ids = (0,)

    def ids(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The same text always gives the same ids."""
        texts = (f"{m['role']}: {word}" for m in messages for word in m["content"].split(" "))
        return [zlib.crc32(text.encode()) % VOCABULARY for text in texts]


@dataclass
class Scene:
    """Rollouts of one step, and the hidden states of every sequence that is asked about."""

    rollouts: list[Rollout]
    head: torch.Tensor
    seed: int
    student: dict[tuple[Any, ...], torch.Tensor] = field(default_factory=dict)
    weights: str = "student with gradient"
    renderer: Words = field(default_factory=Words)
    asked: list[str] = field(default_factory=list)  # the teacher weights that were used, pass by pass

    def hidden(self, weights: str, context: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """[n, d] for a reply behind a context; of the student with gradient a leaf, made once."""
        key = (tuple(context), tuple(tokens))
        if weights == "student with gradient" and key in self.student:
            return self.student[key]
        name = "student" if weights.startswith("student") else weights
        generator = torch.Generator().manual_seed(zlib.crc32(repr((self.seed, name, key)).encode()))
        drawn = torch.randn(len(tokens), WIDTH, generator=generator, dtype=torch.float64)
        drawn *= 2 * torch.rand(len(tokens), 1, generator=generator, dtype=torch.float64)  # unsure and sure
        if weights == "student with gradient":
            self.student[key] = drawn.requires_grad_()
        return drawn

    def reply_hidden(self, body: Any, sequences: Sequence[Any], *_: Any) -> torch.Tensor:
        """In the place of a model's pass."""
        self.asked.append(self.weights)
        parts = [self.hidden(self.weights, context, tokens) for context, tokens in sequences]
        return torch.cat([torch.zeros(0, WIDTH, dtype=torch.float64), *parts])

    @contextmanager
    def teacher_weights(self, model: Any, kind: str) -> Iterator[None]:
        """In the place of the switch of adapters."""
        before, self.weights = self.weights, kind
        try:
            yield
        finally:
            self.weights = before

    def peers(self, moment: Moment) -> Peers:
        """Everything that was played."""
        return Peers(self.rollouts, moment.draw, moment.done)

    def gradient(self) -> dict[tuple[Any, ...], torch.Tensor]:
        """The student's gradient by sequence, zeros where there is none; there is none afterwards."""
        gradients = {}
        for key, leaf in self.student.items():
            gradients[key] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            leaf.grad = None
        return gradients


@dataclass(frozen=True)
class Shown:
    """One reply for a reference: what was played, and log-distributions [n, V]."""

    scene: Scene
    reply: Reply
    rollout: Rollout

    @property
    def y(self) -> torch.Tensor:
        """The sampled tokens, [n, 1]."""
        return torch.tensor(self.reply.tokens)[:, None]

    @property
    def log_s(self) -> torch.Tensor:
        """The student under the context it saw, with gradient."""
        hidden = self.scene.hidden("student with gradient", self.reply.context, self.reply.tokens)
        return (hidden @ self.scene.head.T).log_softmax(-1)

    def hidden_t(self, context: Any, weights: str = "ema") -> torch.Tensor:
        """The teacher's hidden states under messages, or token ids as they are."""
        ids = context if isinstance(context, tuple) else self.scene.renderer.ids(context)
        return self.scene.hidden(weights, ids, self.reply.tokens).detach()

    def logits_t(self, context: Any, weights: str = "ema") -> torch.Tensor:
        """The teacher's logits."""
        return self.hidden_t(context, weights) @ self.scene.head.T

    def log_t(self, context: Any, weights: str = "ema") -> torch.Tensor:
        """The teacher's log-distribution."""
        return self.logits_t(context, weights).log_softmax(-1)

    def of(self, log_p: torch.Tensor) -> torch.Tensor:
        """[n] log-probabilities of the sampled tokens."""
        return log_p.gather(-1, self.y)[:, 0]

    @property
    def users(self) -> list[dict[str, str]]:
        """The user turns up to the reply's."""
        return [_user(shard) for shard in self.reply.example.shards[: self.reply.turn + 1]]

    @property
    def task(self) -> list[dict[str, str]]:
        """The complete task."""
        return [_user(self.reply.example.full)]

    @property
    def middle(self) -> bool:
        """Whether it is a reply to a shard that is not the last."""
        return self.reply.view == "sharded" and self.reply.turn < len(self.reply.example.shards) - 1

    @property
    def clean(self) -> list[dict[str, str]]:
        """What a clean teacher sees of it."""
        return self.users if self.middle else self.task


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def shown(scene: Scene) -> list[list[Shown]]:
    """The replies of every rollout that have tokens."""
    return [[Shown(scene, reply, r) for reply in r.replies() if reply.tokens] for r in scene.rollouts]


def make_scene(
    plan: Plan, seed: int = 0, examples: int = 3, step: int = 7, right: str = "mixed", task: str = "math",
    twice: bool = False,
) -> Scene:  # fmt: skip
    """Rollouts of a step as the plan plays it, tokens and verdicts at random.

    `right`: whether answers are "mixed", "all" right or "none". `task`: of the examples; code has no
    reference answer. `twice`: the step draws its first example again after the others.
    """
    draw = random.Random(seed)
    rollouts: list[Rollout] = []
    drawn: list[Example] = []
    for number in range(examples):
        shards = tuple(f"shard {k} of {number}" for k in range(draw.randint(2, 4)))
        drawn.append(Example(f"e{number}", task, "", shards, f"task {number}", {"value": str(number)}))
    for place, example in enumerate([*drawn, *drawn[:twice]]):
        again = int(place >= examples)
        for sample in range(again * plan.samples, (again + 1) * plan.samples):
            plays = drawn_plays(plan.plays, (seed, step), example, sample)
            talks = tuple(_played(draw, example, play, step) for play in plays)
            verdicts = tuple(
                _verdict(draw, right) if play.verify and not talk.cut else None
                for play, talk in zip(plays, talks, strict=True)
            )
            rollouts.append(Rollout(example, talks, verdicts, sample, repeat=again))
    rollouts = grade_groups(rollouts, plan.grade) if plan.grade else graded(rollouts, [0.0] * len(rollouts))
    head = torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    scene = Scene(rollouts, head, seed)
    for talk in (talk for rollout in rollouts for talk in rollout.conversations):
        talk.turns[:] = [replace(turn, logps=_sampled_logps(draw, scene, turn)) for turn in talk.turns]
        for turn in talk.turns:
            scene.hidden("student with gradient", turn.context, turn.reply)
    return scene


def _sampled_logps(draw: random.Random, scene: Scene, turn: Turn) -> tuple[float, ...]:
    """The student's log-probabilities, and now and then a coarser engine's."""
    log_p = (scene.hidden("student", turn.context, turn.reply) @ scene.head.T).log_softmax(-1)
    noise = (draw.gauss(0, draw.choice([0.05, 1.0])) for _ in turn.reply)
    return tuple(log_p[i, y].item() + next(noise) for i, y in enumerate(turn.reply))


def _verdict(draw: random.Random, right: str) -> Verdict:
    return Verdict(draw.random() < {"mixed": 0.5, "all": 2, "none": -1}[right], None, "ok", "")


def _played(draw: random.Random, example: Example, play: Play, step: int) -> Conversation:
    whole = len(example.shards) if play.view == "sharded" else 1
    most = min(whole, play.turns(step)) if play.turns else whole
    talk = Conversation(example, play.view, cut=most < whole)
    for turn in range(most):
        context = tuple(draw.randrange(VOCABULARY) for _ in range(4 + 3 * turn))
        empty = turn == 1 and draw.random() < 0.2  # an empty reply is nobody's business
        reply = tuple(draw.randrange(VOCABULARY) for _ in range(0 if empty else draw.randint(1, 7)))
        talk.asked.append("said")
        talk.turns.append(Turn(context, reply, Stop.END, f"text {draw.random()}"))
    return talk


def whole_loss(
    monkeypatch: pytest.MonkeyPatch, scene: Scene, plan: Plan, moment: Moment, fast: bool = True,
    micro_batch: int = 2,
) -> list[RolloutLoss]:  # fmt: skip
    """The step's losses by the package's own code; their mean's gradient, unbalanced, is in the scene."""
    plan = replace(plan, balance=False)
    monkeypatch.setattr(scores, "body_and_head", lambda model: (None, scene.head))
    monkeypatch.setattr(scores, "teacher_weights", scene.teacher_weights)
    path = ScoringPath(scene.reply_hidden, kernel.token_stats if fast else plain.token_stats)
    settings, model, renderer = TrainSettings(micro_batch=micro_batch), torch.nn.Module(), scene.renderer
    scorer = StepScorer(model, renderer, plan, settings, Processes(), path=path)  # type: ignore[arg-type]
    scorer.student = list(scene.student.values())
    return scorer.score(scene.rollouts, moment)[0]

"""Turn accuracy while training: are middle replies right for what was told so far? Of the student's replies,
which are there anyway, and now and then of the teacher's own, in the context it judges the student from.

Only tasks that know what a middle reply should say are asked.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smopd.evaluation.evaluate import expected_so_far, told_so_far
from smopd.models.adapters import teacher_weights
from smopd.rollout import Conversation
from smopd.rollout.hf import HFEngine
from smopd.rollout.play import Rollout
from smopd.seeds import rng
from smopd.training import sharding
from smopd.verify.verifiers import verify_all

if TYPE_CHECKING:
    from smopd.training.loop import Trainer

TEACHER_REPLIES = 16  # at a time: about as many as three conversations have


def turn_accuracy(trainer: "Trainer", everyone: Sequence[Rollout], step: int) -> dict[str, float]:
    """What a step's row says of middle turns: shares of right replies, nothing where none can be judged."""
    own = trainer.processes.share(everyone)
    found = {"turn_accuracy": _right([c for r in own for c in r.conversations])}
    every = trainer.config.train.teacher_every
    if every and step % every == 0:
        found["teacher/turn_accuracy"] = _teachers(trainer, everyone, step)
    shares = {name: trainer.processes.gather(right) for name, right in found.items()}
    return {name: sum(right) / len(right) for name, right in shares.items() if right}


def _right(conversations: Sequence[Conversation]) -> list[bool]:
    """The verdicts on middle replies whose right answer is known."""
    pairs = [
        judged
        for conversation in conversations
        for turn, judged in expected_so_far(conversation).items()
        if turn < conversation.whole - 1
    ]
    return [verdict.correct for verdict in verify_all(pairs)]


def _teachers(trainer: "Trainer", everyone: Sequence[Rollout], step: int) -> list[bool]:
    """The same of the teacher's own replies to some middle turns of the step, sampled like the student's."""
    places = [(r.example, turn, r.sample) for r in everyone for turn in range(len(r.example.shards) - 1)]
    known = [(*place, told) for place in places if (told := told_so_far(*place[:2]))]
    draw = (trainer.config.seed, "teacher's turns", step)
    chosen = trainer.processes.share(rng(*draw).sample(known, min(TEACHER_REPLIES, len(known))))
    # Whatever samples the student's replies, the teacher is here, beside the weights that are trained.
    ends, batch = trainer.renderer.end_ids, trainer.config.rollout.batch
    engine = HFEngine(trainer.model, ends, batch, cache_mb=0, static=False)
    driver = replace(trainer.driver, engine=engine, clean=trainer.plan.clean)
    whole: Any = sharding.unsharded(trainer.model) if trainer.sharded else nullcontext()
    with whole, teacher_weights(trainer.model, "ema"):
        replies = driver.answer_clean([(example, turn, sample) for example, turn, sample, _ in chosen], draw)
    judged = [(told, reply.text) for (*_, told), reply in zip(chosen, replies, strict=True)]
    return [verdict.correct for verdict in verify_all(judged)]

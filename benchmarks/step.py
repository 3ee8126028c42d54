"""`benchmarks step`: scoring of a training step, fast path against plain path: `pocket`, the shipped recipe
with replies its own model samples, and `smollm2`, a random model of SmolLM2's shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.measure import Work, report_of
from smopd.chat import Renderer
from smopd.config import Config, load_config, plan_of
from smopd.data import load_examples
from smopd.doctor.speed_parts import move_student, pocket_renderer, random_rollouts
from smopd.models import load_model
from smopd.models.adapters import attach, student_parameters
from smopd.objective.tokens import Moment
from smopd.rollout import Conversation, Rollout
from smopd.rollout.assembly import training_driver
from smopd.rollout.play import drawn_plays
from smopd.tracking import Track, quiet
from smopd.training.processes import Processes
from smopd.training.scores import FAST, PLAIN
from smopd.training.step_scoring import StepScorer
from smopd.verify import verify

SCENES, PATHS = ("pocket", "smollm2"), {"fast": FAST, "plain": PLAIN}


@dataclass(frozen=True)
class Step:
    """How many rollouts each scene scores, and the shape of the second scene's model."""

    rollouts: int = 16  # pocket
    conversations: int = 2  # smollm2, as are the rest
    reply: int = 40
    width: int = 576
    intermediate: int = 1536
    layers: int = 30
    heads: int = 9
    key_value_heads: int = 3
    vocabulary: int = 49152
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """A student and its teacher, and the rollouts of one step."""

    config: Config
    model: PeftModel
    renderer: Renderer
    rollouts: list[Rollout]

    def run(self, path: str, rollouts: list[Rollout] | None = None) -> float:
        """Score and differentiate in the recipe's micro-batches, as the training loop does; the loss."""
        plan, train = plan_of(self.config), self.config.train
        scorer = StepScorer(self.model, self.renderer, plan, train, Processes(), path=PATHS[path])
        moment = Moment(train.steps, train.steps, (self.config.seed, train.steps))
        losses, _ = scorer.score(self.rollouts if rollouts is None else rollouts, moment)
        return sum(loss.total.item() for loss in losses) / len(losses)


def make_problem(scene: str, settings: Step) -> Problem:
    """The scene, with a student that has left its teacher: while they are equal there is no loss."""
    problem = _pocket(settings) if scene == "pocket" else _smollm2(settings)
    move_student(problem.model, settings.seed)
    return problem


def _pocket(settings: Step) -> Problem:
    config = load_config("pocket", [f"train.rollouts={settings.rollouts}"])
    chat = load_model(config)
    model = attach(chat.model, config.lora, settings.seed)
    driver = training_driver(config, chat.renderer, model, Path())
    examples = load_examples(config.data.train, settings.rollouts)
    plays = plan_of(config).plays
    drawn = [drawn_plays(plays, (settings.seed,), example, 0) for example in examples]
    played: list[list[Conversation]] = [[] for _ in examples]
    for play in plays:
        now = [k for k, chosen in enumerate(drawn) if play in chosen]
        conversations = driver.play([examples[k] for k in now], play.view, (settings.seed, "bench"))
        for k, conversation in zip(now, conversations, strict=True):
            played[k].append(conversation)
    rollouts = []
    for example, talks in zip(examples, played, strict=True):
        verdicts = (verify(example, talks[0].final_text), *(None for _ in talks[1:]))
        rollouts.append(Rollout(example, tuple(talks), verdicts))
    return Problem(config, model, chat.renderer, rollouts)


def _smollm2(settings: Step) -> Problem:
    config = load_config(None, [])  # the paper's adapter, one rollout at a time
    renderer = pocket_renderer()
    torch.manual_seed(settings.seed)
    shape = LlamaConfig(
        vocab_size=settings.vocabulary, hidden_size=settings.width, intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads, max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    model = attach(LlamaForCausalLM(shape), config.lora, settings.seed)
    examples = load_examples(f"pocket:eval:{settings.conversations}")
    rollouts = random_rollouts(renderer, examples, settings.reply, settings.seed)
    return Problem(config, model, renderer, rollouts)


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work; a variant is a scene and a path, as in "pocket fast"."""
    scene, path = variant.split()
    problem = make_problem(scene, Step(**settings))

    def warm_up() -> None:
        problem.run(path, problem.rollouts[:1])
        problem.model.zero_grad(set_to_none=True)

    def facts(loss: float) -> dict[str, Any]:
        gradients = [p.grad for p in student_parameters(problem.model).values() if p.grad is not None]
        replies = [reply for rollout in problem.rollouts for reply in rollout.replies()]
        norm, tokens = torch.nn.utils.get_total_norm(gradients).item(), sum(len(r.tokens) for r in replies)
        counts = {"rollouts": len(problem.rollouts), "replies": len(replies), "reply_tokens": tokens}
        return {"loss": loss, "gradient_norm": norm, **counts}

    return Work(warm_up, lambda: problem.run(path), facts)


def report(settings: Step, reps: int, scenes: Sequence[str] = SCENES, track: Track = quiet) -> dict[str, Any]:
    """Measure the scenes on both paths."""
    against = {f"{scene} fast": [f"{scene} plain"] for scene in scenes}
    notes = ["sampling and the optimizer are not timed: they are the same on both paths"]
    return report_of("step", settings, reps, against, track) | {"notes": notes}

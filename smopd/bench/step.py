"""`bench step`: the scoring part of a training step (passes, loss, backward), fast path against plain path.

Two scenes: `pocket`, the shipped recipe with replies its own model samples, and `smollm2`, a random model of
SmolLM2's shape. It leaves out sampling and the optimizer, which are the same on both paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from transformers import LlamaConfig, LlamaForCausalLM

from smopd.bench.measure import Work, report_of
from smopd.bench.replies import random_conversation, renderer_of
from smopd.chat import Renderer
from smopd.config import Config, load_config
from smopd.data import load_examples
from smopd.models import load_model
from smopd.models.adapters import attach, student_parameters
from smopd.pocket import MODEL_DIR
from smopd.rollout import Driver, HFEngine, Sampling
from smopd.seeds import rng, torch_generator
from smopd.tracking import Track, quiet
from smopd.training.scoring_step import FAST, PLAIN, Rollout, score
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
        chosen = self.rollouts if rollouts is None else rollouts
        settings, row_tokens = self.config.objective, self.config.train.row_tokens
        size, total = self.config.train.micro_batch, 0.0
        for first in range(0, len(chosen), size):
            part = chosen[first : first + size]
            losses, _ = score(
                self.model, self.renderer, part, settings, settings.keep, row_tokens, path=PATHS[path]
            )
            loss = torch.stack([part.total for part in losses]).sum() / len(chosen)
            loss.backward()
            total += loss.item()
        return total


def make_problem(scene: str, settings: Step) -> Problem:
    """The scene, with a student that has left its teacher: while they are equal there is no loss."""
    problem = _pocket(settings) if scene == "pocket" else _smollm2(settings)
    g = torch_generator(settings.seed, "bench student")
    with torch.no_grad():
        for parameter in student_parameters(problem.model).values():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=g))
    problem.model.train()
    return problem


def _pocket(settings: Step) -> Problem:
    config = load_config("pocket", [f"train.rollouts={settings.rollouts}"])
    chat = load_model(config)
    draw = config.rollout
    engine = HFEngine(chat.model, chat.renderer.end_ids, draw.batch)
    sampling = Sampling(draw.temperature, draw.answer_tokens, draw.top_p, draw.top_k)
    driver = Driver(engine, chat.renderer, sampling, draw.middle_tokens, config.chat.history)
    examples = load_examples(config.data.train, settings.rollouts)
    branch = [e for e in examples if rng(settings.seed, "full branch", e.id).random() < config.objective.rho]
    full = {c.example.id: c for c in driver.play(branch, "full", (settings.seed, "bench"))}
    rollouts = [
        Rollout(c, full.get(c.example.id), verify(c.example, c.final_text))
        for c in driver.play(examples, "sharded", (settings.seed, "bench"))
    ]
    return Problem(config, attach(chat.model, config.lora, settings.seed), chat.renderer, rollouts)


def _smollm2(settings: Step) -> Problem:
    config = load_config(None, [])  # the paper's adapter, one rollout at a time
    renderer = renderer_of(MODEL_DIR)
    torch.manual_seed(settings.seed)
    shape = LlamaConfig(
        vocab_size=settings.vocabulary, hidden_size=settings.width, intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads, max_position_embeddings=8192, tie_word_embeddings=True,
    )  # fmt: skip
    model = attach(LlamaForCausalLM(shape), config.lora, settings.seed)
    rollouts = []
    for example in load_examples(f"pocket:eval:{settings.conversations}"):
        conversation = random_conversation(renderer, example, settings.reply, settings.seed)
        rollouts.append(Rollout(conversation, None, verify(example, conversation.final_text)))
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
        turns = [t for r in problem.rollouts for c in (r.sharded, r.full) if c for t in c.turns]
        return {
            "loss": loss,
            "gradient_norm": torch.nn.utils.get_total_norm(gradients).item(),
            "rollouts": len(problem.rollouts),
            "replies": len(turns),
            "reply_tokens": sum(len(turn.reply) for turn in turns),
        }

    return Work(warm_up, lambda: problem.run(path), facts)


def report(settings: Step, reps: int, scenes: Sequence[str] = SCENES, track: Track = quiet) -> dict[str, Any]:
    """Measure the scenes on both paths."""
    against = {f"{scene} fast": [f"{scene} plain"] for scene in scenes}
    notes = ["sampling and the optimizer are not timed: they are the same on both paths"]
    return report_of("step", settings, reps, against, track) | {"notes": notes}

"""`bench scoring`: the model passes over whole conversations, packed prefix trees against one padded row for
every turn.

Real shards, random replies, a small random Qwen3 body. `student`: dirty contexts, forward and backward;
`teacher`: clean contexts, forward. `padded`: the turns of a conversation are one batch, padded to its
longest; `sorted`: rows of like length are batched across conversations, which leaves little padding and is
what the plain path does. It leaves out the head (`smopd.bench.head`) and adapters (`smopd.bench.step`).
"""

import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3Model

from smopd.bench.measure import Case, Work, machine, measure, ratios
from smopd.bench.replies import load_renderer, random_conversation
from smopd.chat import clean_context
from smopd.data import load_examples
from smopd.pocket import MODEL_DIR
from smopd.scoring import passes, plain
from smopd.seeds import derive

SIDES, PATHS = ("student", "teacher"), ("packed", "padded", "sorted")
Sequences = list[tuple[tuple[int, ...], tuple[int, ...]]]  # context ids, reply ids


@dataclass(frozen=True)
class Scoring:
    """Which conversations, and how large a body."""

    data: str = "pocket:eval:8"
    tokenizer: str = str(MODEL_DIR)
    conversations: int = 8
    reply: int = 120
    width: int = 256
    layers: int = 4
    history: str = (
        "template"  # or "verbatim": then every turn's tokens begin the next turn's, and more is shared
    )
    row_tokens: int | None = None  # of one pass; None leaves each path its own default
    seed: int = 0


@dataclass
class Problem:
    """A body, the sequences of both sides by conversation, and how many tokens went through the body so far,
    padding included.
    """

    body: torch.nn.Module
    sequences: dict[str, list[Sequences]]
    row_tokens: int | None
    passed: int = 0

    def hidden(self, side: str, path: str) -> torch.Tensor:
        """[N, d] hidden states that predict the reply tokens of one side."""
        if path == "padded":
            whole = sys.maxsize
            return torch.cat(
                [plain.reply_hidden(self.body, turns, "cpu", whole) for turns in self.sequences[side]]
            )
        module = passes if path == "packed" else plain
        budget = {} if self.row_tokens is None else {"row_tokens": self.row_tokens}
        return module.reply_hidden(
            self.body, [turn for turns in self.sequences[side] for turn in turns], "cpu", **budget
        )

    def run(self, side: str, path: str) -> torch.Tensor:
        """What is timed: the student's pass with its backward, or the teacher's without."""
        if side == "teacher":
            with torch.no_grad():
                return self.hidden(side, path).square().mean()
        loss = self.hidden(side, path).square().mean()
        loss.backward()
        return loss.detach()


def make_problem(settings: Scoring) -> Problem:
    """Conversations with random replies, and a random body over the tokenizer's vocabulary."""
    renderer = load_renderer(settings.tokenizer)
    examples = load_examples(settings.data, settings.conversations)
    sequences: dict[str, list[Sequences]] = {side: [] for side in SIDES}
    for example in examples:
        turns = random_conversation(renderer, example, settings.reply, settings.seed, settings.history).turns
        sequences["student"].append([(turn.context, turn.reply) for turn in turns])
        sequences["teacher"].append(
            [
                (tuple(clean_context(renderer, example, number)), turn.reply)
                for number, turn in enumerate(turns)
            ]
        )
    torch.manual_seed(derive(settings.seed, "bench body"))
    body = Qwen3Model(
        Qwen3Config(
            vocab_size=-(-len(renderer.tokenizer) // 64) * 64,
            hidden_size=settings.width,
            intermediate_size=3 * settings.width,
            num_hidden_layers=settings.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=settings.width // 4,
            max_position_embeddings=32768,
        )
    )
    # As in training: the table's gradient, as large as the vocabulary, would cost the same on both paths and
    # hide the rest.
    body.embed_tokens.weight.requires_grad_(False)
    problem = Problem(body, sequences, settings.row_tokens)

    def count(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        problem.passed += (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).numel()

    body.register_forward_pre_hook(count, with_kwargs=True)
    return problem


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work; a variant is a side and a path, as in "student packed"."""
    side, path = variant.split()
    problem = make_problem(Scoring(**settings))

    def warm_up() -> None:
        Problem(problem.body, {side: [problem.sequences[side][0][:1]]}, problem.row_tokens).run(side, path)
        problem.body.zero_grad(set_to_none=True)
        problem.passed = 0

    def facts(value: torch.Tensor) -> dict[str, Any]:
        sequences = [turn for turns in problem.sequences[side] for turn in turns]
        return {
            "value": value.item(),
            "sequences": len(sequences),
            "reply_tokens": sum(len(reply) for _, reply in sequences),
            "sequence_tokens": sum(len(context) + len(reply) for context, reply in sequences),
            "tokens": problem.passed,  # through the body, padding included
        }

    return Work(warm_up, lambda: problem.run(side, path), facts)


def report(settings: Scoring, reps: int) -> dict[str, Any]:
    """Measure both sides on both paths."""
    names = [f"{side} {path}" for side in SIDES for path in PATHS]
    rows = measure([Case(name, "scoring", name, asdict(settings)) for name in names], reps, "bench scoring")
    by_name = {row.name: row for row in rows}
    return {
        "bench": "scoring",
        "machine": machine(),
        "settings": asdict(settings),
        "reps": reps,
        "results": [row.to_json() for row in rows],
        "ratios": {
            f"{side} packed": ratios(
                by_name[f"{side} packed"], [by_name[f"{side} {path}"] for path in PATHS[1:]]
            )
            for side in SIDES
        },
        "notes": [],
    }

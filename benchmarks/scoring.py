"""`benchmarks scoring`: model passes, packed prefix trees against a padded row for every turn (`padded`: a
batch a conversation; `sorted`: rows of like length share a batch). `student`: forward and backward;
`teacher`: forward.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3Model

from benchmarks.measure import Work, report_of
from smopd.chat import Renderer
from smopd.chat.messages import clean_messages
from smopd.data import Example, load_examples
from smopd.doctor.speed_parts import random_conversation
from smopd.errors import UserError
from smopd.pocket import MODEL_DIR
from smopd.scoring import passes, plain
from smopd.seeds import derive
from smopd.tracking import Track, quiet

CPU = torch.device("cpu")
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
    history: str = "template"  # with "verbatim" every turn's tokens begin the next turn's: more is shared
    row_tokens: int | None = None  # of one pass; None leaves each path its own default
    seed: int = 0


@dataclass
class Problem:
    """A body, the sequences of both sides by conversation, and the tokens passed through the body so far."""

    body: torch.nn.Module
    sequences: dict[str, list[Sequences]]
    row_tokens: int | None
    passed: int = 0  # padding included

    def hidden(self, side: str, path: str) -> torch.Tensor:
        """[N, d] hidden states that predict the reply tokens of one side."""
        conversations = self.sequences[side]
        if path == "padded":
            whole = sys.maxsize
            rows = (plain.reply_hidden(self.body, c, CPU, whole) for c in conversations)
            return torch.cat(list(rows))
        module = passes if path == "packed" else plain
        budget = {} if self.row_tokens is None else {"row_tokens": self.row_tokens}
        turns = [turn for c in conversations for turn in c]
        return module.reply_hidden(self.body, turns, CPU, **budget)

    def run(self, side: str, path: str) -> torch.Tensor:
        """What is timed: the student's pass with its backward, or the teacher's without."""
        with torch.set_grad_enabled(side == "student"):
            loss = self.hidden(side, path).square().mean()
        if side == "student":
            loss.backward()
        return loss.detach()


def sequences_of(
    renderer: Renderer, examples: Iterable[Example], reply: int, seed: int, history: str
) -> dict[str, list[Sequences]]:
    """The sequences of both sides by conversation, with random replies of so many tokens."""
    sequences: dict[str, list[Sequences]] = {side: [] for side in SIDES}
    for example in examples:
        turns = random_conversation(renderer, example, reply, seed, history).turns
        sequences["student"].append([(turn.context, turn.reply) for turn in turns])
        clean = [tuple(renderer.ids(clean_messages(example, number))) for number in range(len(turns))]
        sequences["teacher"].append([(c, turn.reply) for c, turn in zip(clean, turns, strict=True)])
    return sequences


def load_renderer(folder: str) -> Renderer:
    try:
        return Renderer(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except (OSError, ValueError, KeyError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"{folder}: no tokenizer can be loaded: {why}") from None


def make_problem(settings: Scoring) -> Problem:
    """Conversations with random replies, and a random body over the tokenizer's vocabulary."""
    renderer = load_renderer(settings.tokenizer)
    examples = load_examples(settings.data, settings.conversations)
    sequences = sequences_of(renderer, examples, settings.reply, settings.seed, settings.history)
    torch.manual_seed(derive(settings.seed, "bench body"))
    width = settings.width
    shape = Qwen3Config(
        vocab_size=-(-len(renderer.tokenizer) // 64) * 64, hidden_size=width, intermediate_size=3 * width,
        num_hidden_layers=settings.layers, num_attention_heads=4, num_key_value_heads=2, head_dim=width // 4,
        max_position_embeddings=32768,
    )  # fmt: skip
    body = Qwen3Model(shape)
    # As in training; the large gradient of the table would cost the same on both paths and hide the rest.
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
            "sequences": len(sequences), "reply_tokens": sum(len(reply) for _, reply in sequences),
            "sequence_tokens": sum(len(context) + len(reply) for context, reply in sequences),
            "tokens": problem.passed,  # through the body, padding included
        }  # fmt: skip

    return Work(warm_up, lambda: problem.run(side, path), facts)


def report(settings: Scoring, reps: int, track: Track = quiet) -> dict[str, Any]:
    """Measure both sides on all paths."""
    against = {f"{side} packed": [f"{side} {path}" for path in PATHS[1:]] for side in SIDES}
    return report_of("scoring", settings, reps, against, track)

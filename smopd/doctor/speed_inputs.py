"""Inputs of speed measurements: rows like hidden states of a model, real shards with random replies."""

from collections.abc import Iterable

import torch
from peft import PeftModel
from transformers import AutoTokenizer

from smopd.chat import DirtyContext, Renderer
from smopd.data import Example
from smopd.models.adapters import student_parameters
from smopd.pocket import MODEL_DIR
from smopd.rollout import Conversation, Rollout, Stop, Turn
from smopd.seeds import rng, torch_generator
from smopd.verify import verify


def random_rows(
    tokens: int, width: int, vocabulary: int, seed: int, distance: float | None = None
) -> tuple[torch.Tensor, ...]:
    """Student and teacher [N, d], mostly close together or at one distance, head [V, d], tokens [N]; few
    tokens are likely.
    """
    g = torch_generator(seed, "bench head")
    weight_Vd = torch.randn(vocabulary, width, generator=g) / width**0.5
    # The scale of a row is the standard deviation of its logits: with 8, only a few tokens are likely.
    student_Nd = torch.randn(tokens, width, generator=g) * (4 + 4 * torch.rand(tokens, 1, generator=g))
    # Squared, so that most teachers are close, and a few so far that the divergence exceeds the clip.
    distance_N1 = 4 * torch.rand(tokens, 1, generator=g) ** 2 if distance is None else distance
    teacher_Nd = student_Nd + distance_N1 * torch.randn(tokens, width, generator=g)
    return student_Nd, teacher_Nd, weight_Vd, torch.randint(vocabulary, (tokens,), generator=g)


def pocket_renderer() -> Renderer:
    """The chat template of the pocket model, which needs no download."""
    return Renderer(AutoTokenizer.from_pretrained(str(MODEL_DIR), trust_remote_code=False))


def random_reply(renderer: Renderer, length: int, *seed: int | str) -> tuple[int, ...]:
    """Random ordinary tokens: no special ones, and no parts of a character."""
    tokenizer = renderer.tokenizer
    draw = rng(*seed, "bench reply")
    special = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    reply: list[int] = []
    while len(reply) < length:
        token = draw.randrange(len(tokenizer))
        text = renderer.decode([token])
        if token not in special and text.strip() and "\ufffd" not in text:
            reply.append(token)
    return tuple(reply)


def random_conversation(
    renderer: Renderer, example: Example, length: int, seed: int, history: str = "template"
) -> Conversation:
    """An example told shard by shard, with a new reply of `length` random tokens in every turn."""
    conversation = Conversation(example, "sharded")
    context = DirtyContext(renderer, example, "verbatim" if history == "verbatim" else "template")
    for number, user in enumerate(example.shards):
        asked = context.ask(user)
        reply = random_reply(renderer, length, seed, example.id, number)
        context.answer(reply)
        conversation.asked.append(user)
        conversation.turns.append(Turn(tuple(asked), reply, Stop.LENGTH, renderer.decode(reply)))
    return conversation


def random_rollouts(renderer: Renderer, examples: Iterable[Example], reply: int, seed: int) -> list[Rollout]:
    rollouts = []
    for example in examples:
        conversation = random_conversation(renderer, example, reply, seed)
        rollouts.append(Rollout(example, (conversation,), (verify(example, conversation.final_text),)))
    return rollouts


@torch.no_grad()
def move_student(model: PeftModel, seed: int) -> None:
    """Move the student away from its teacher, since the loss of equal models is 0."""
    g = torch_generator(seed, "bench student")
    for parameter in student_parameters(model).values():
        parameter.add_((0.03 * torch.randn(parameter.shape, generator=g)).to(parameter))
    model.train()

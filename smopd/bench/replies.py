"""Conversations for the benchmarks: real shards, random replies from seeds, the chat template's histories."""

from pathlib import Path

from transformers import AutoTokenizer

from smopd.chat import DirtyContext, Renderer
from smopd.data import Example
from smopd.errors import UserError
from smopd.rollout import Conversation, Stop, Turn
from smopd.seeds import rng


def renderer_of(folder: str | Path) -> Renderer:
    """The chat template of a tokenizer folder."""
    try:
        return Renderer(AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False))
    except (OSError, ValueError, KeyError) as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(f"{folder}: no tokenizer can be loaded: {why}") from None


def random_reply(renderer: Renderer, length: int, *seed: int | str) -> tuple[int, ...]:
    """Ordinary tokens: no special ones, none that is only a piece of a character."""
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
    """One example told shard by shard, every reply `length` random tokens, another for every turn."""
    conversation = Conversation(example, "sharded")
    context = DirtyContext(renderer, example, "verbatim" if history == "verbatim" else "template")
    for number, user in enumerate(example.shards):
        asked = context.ask(user)
        reply = random_reply(renderer, length, seed, example.id, number)
        context.answer(reply)
        conversation.asked.append(user)
        conversation.turns.append(Turn(tuple(asked), reply, Stop.LENGTH, renderer.decode(reply)))
    return conversation

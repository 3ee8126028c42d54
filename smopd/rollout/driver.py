"""The multi-turn driver: plays conversations against any engine, turn by turn, all conversations of a batch side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from smopd.chat.contexts import DirtyContext, History, full_context
from smopd.chat.template import Renderer
from smopd.data import Example
from smopd.rollout.engine import Engine, Sampling, Session, Stop
from smopd.seeds import derive


@dataclass(frozen=True)
class Turn:
    """One reply with the context it was sampled from. `context + reply` is what the student is scored on."""

    context: tuple[int, ...]
    reply: tuple[int, ...]
    stop: Stop
    text: str
    logps: tuple[float, ...] = field(default=(), compare=False)  # of the reply's tokens, as the engine sampled them
    tokens: int | None = None  # how many a server counted, where there are no ids


@dataclass
class Conversation:
    """One example played in one view."""

    example: Example
    view: str
    turns: list[Turn] = field(default_factory=list)

    @property
    def final_text(self) -> str:
        """The reply that counts: the one to the last user turn."""
        return self.turns[-1].text

    def to_json(self) -> dict[str, Any]:
        """What a person or a script wants to read of it."""
        asked = self.example.shards if self.view == "sharded" else [self.example.full]
        return {
            "id": self.example.id,
            "view": self.view,
            "turns": [
                {"user": user, "reply": turn.text, "stop": str(turn.stop), "tokens": len(turn.reply) or turn.tokens}
                for user, turn in zip(asked, self.turns, strict=False)
            ],
        }


@dataclass(frozen=True)
class Driver:
    """Plays FULL and SHARDED conversations with one engine, one template and one way of sampling.

    `sampling.max_tokens` bounds the reply to the last user turn, `middle_tokens` the ones before.
    """

    engine: Engine
    renderer: Renderer
    sampling: Sampling
    middle_tokens: int
    history: History = "template"

    def sharded(self, examples: Sequence[Example], seed: Sequence[int | str]) -> list[Conversation]:
        """Every example told shard by shard, the student's own replies in the history."""
        conversations = [Conversation(e, "sharded") for e in examples]
        contexts = [DirtyContext(self.renderer, e, self.history) for e in examples]
        for turn in range(max((len(e.shards) for e in examples), default=0)):
            now = [i for i, e in enumerate(examples) if turn < len(e.shards)]
            limits = {i: self.sampling.max_tokens if turn == len(examples[i].shards) - 1 else self.middle_tokens for i in now}
            for limit in sorted(set(limits.values())):  # one batch has one token limit
                group = [i for i in now if limits[i] == limit]
                seeds = [derive(*seed, "sharded", examples[i].id, turn) for i in group]
                sessions = [Session(f"{derive(*seed)}/{i}", turn < len(examples[i].shards) - 1) for i in group]
                for i, said in zip(group, self._reply([contexts[i].ask() for i in group], seeds, limit, sessions), strict=True):
                    contexts[i].answer(said.reply)
                    conversations[i].turns.append(said)
        return conversations

    def full(self, examples: Sequence[Example], seed: Sequence[int | str]) -> list[Conversation]:
        """Every example in one message."""
        prompts = [full_context(self.renderer, e) for e in examples]
        seeds = [derive(*seed, "full", e.id, 0) for e in examples]
        turns = self._reply(prompts, seeds, self.sampling.max_tokens)
        return [Conversation(e, "full", [turn]) for e, turn in zip(examples, turns, strict=True)]

    def _reply(self, prompts: list[list[int]], seeds: list[int], limit: int, sessions: list[Session] | None = None) -> list[Turn]:
        drawn = self.engine.generate(prompts, seeds, replace(self.sampling, max_tokens=limit), sessions)
        return [
            Turn(tuple(prompt), reply.ids, reply.stop, self.renderer.decode(reply.ids), reply.logps)
            for prompt, reply in zip(prompts, drawn, strict=True)
        ]

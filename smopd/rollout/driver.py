"""Plays conversations against any engine, turn by turn, those of a batch side by side."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from smopd.chat.contexts import DirtyContext, History
from smopd.chat.messages import Clean, clean_messages
from smopd.chat.template import Renderer
from smopd.chat.views import View, user_turns
from smopd.data import Example
from smopd.rollout.engine import Engine, Sampling, Session, Stop
from smopd.rollout.lengths import room_left
from smopd.rollout.play import numbered
from smopd.seeds import derive

Seed = Sequence[int | str]


@dataclass(frozen=True)
class Turn:
    """One reply with the context it was sampled from. `context + reply` is what the student is scored on."""

    context: tuple[int, ...]
    reply: tuple[int, ...]
    stop: Stop
    text: str
    logps: tuple[float, ...] = field(default=(), compare=False)  # of the reply's tokens, from the engine
    tokens: int | None = None  # how many a server counted, where there are no ids


@dataclass
class Conversation:
    """One example played in one view: what the user said, and the replies."""

    example: Example
    view: View
    asked: list[str] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    cut: bool = False  # ended before the user had said everything
    # Grows with it, where token ids are at hand.
    context: DirtyContext | None = field(default=None, repr=False, compare=False)
    session: str = field(default="", repr=False, compare=False)

    @property
    def whole(self) -> int:
        """The turns it has when it is played to its end."""
        return len(user_turns(self.example, self.view)) if self.cut else len(self.turns)

    @property
    def final_text(self) -> str:
        return self.turns[-1].text

    def to_json(self) -> dict[str, Any]:
        turns = [
            {"user": user, "reply": t.text, "stop": str(t.stop), "tokens": len(t.reply) or t.tokens}
            for user, t in zip(self.asked, self.turns, strict=True)
        ]
        return {"id": self.example.id, "view": self.view, "turns": turns}


@dataclass(frozen=True)
class Driver:
    """Plays conversations with one engine; `middle_tokens` bounds every reply but a conversation's last."""

    engine: Engine
    renderer: Renderer
    sampling: Sampling
    middle_tokens: int
    history: History = "template"
    clean: Clean = "separate"  # how the view teacher is told the user turns
    heard: Callable[[int], None] = lambda replies: None  # told of every few replies, for a progress line

    def play(
        self, examples: Sequence[Example], view: View, seed: Seed, samples: Sequence[int] | None = None,
        most: int | None = None,
    ) -> list[Conversation]:  # fmt: skip
        """Every example told in one view; `samples` tell equal examples apart, `most` bounds the turns."""
        numbers = samples or [0] * len(examples)
        if view == "teacher":
            return self._play_clean(examples, seed, numbers)
        messages = [user_turns(e, view) for e in examples]
        played = [self.open(e, view, seed, n) for e, n in zip(examples, numbers, strict=True)]
        for conversation, users in zip(played, messages, strict=True):
            conversation.cut = most is not None and most < len(users)
        for turn in range(min(max(map(len, messages), default=0), most or sys.maxsize)):
            now = [i for i, users in enumerate(messages) if turn < len(users)]
            seeds = [derive(*seed, view, *numbered((examples[i].id, turn), numbers[i])) for i in now]
            last = [turn == len(messages[i]) - 1 for i in now]
            self.reply([played[i] for i in now], [messages[i][turn] for i in now], seeds, last)
        return played

    def recite(self, examples: Sequence[Example], replies: Sequence[str]) -> list[Conversation]:
        """The whole task in one message with a given reply to it; nothing is sampled."""
        played = []
        for example, text in zip(examples, replies, strict=True):
            (user,) = user_turns(example, "full")
            prompt = DirtyContext(self.renderer, example, self.history).ask(user)
            reply = (*self.renderer.encode(text), self.renderer.end_of_turn)
            turn = Turn(tuple(prompt), reply, Stop.END, text)
            played.append(Conversation(example, "full", [user], [turn]))
        return played

    def _play_clean(
        self, examples: Sequence[Example], seed: Seed, numbers: Sequence[int]
    ) -> list[Conversation]:
        """Every turn answered in its clean context: no reply depends on another one."""
        played = [Conversation(e, "teacher", [*user_turns(e, "teacher")]) for e in examples]
        places = [(c, turn, n) for c, n in zip(played, numbers, strict=True) for turn in range(len(c.asked))]
        replies = self.answer_clean([(c.example, turn, n) for c, turn, n in places], seed)
        for (conversation, *_), turn in zip(places, replies, strict=True):
            conversation.turns.append(turn)
        return played

    def answer_clean(self, asked: Sequence[tuple[Example, int, int]], seed: Seed) -> list[Turn]:
        """A reply to each (example, turn, sample) in the context a teacher sees for that turn."""
        replies: dict[int, Turn] = {}
        for last in (False, True):
            now = [i for i, (e, turn, _) in enumerate(asked) if (turn == len(e.shards) - 1) == last]
            prompts, seeds, names = [], [], []
            for example, turn, sample in (asked[i] for i in now):
                prompts.append(self.renderer.ids(clean_messages(example, turn, self.clean)))
                seeds.append(derive(*seed, "teacher", *numbered((example.id, turn), sample)))
                names.append(f"example {example.id!r}, turn {turn + 1} of TEACHER")
            replies.update(zip(now, self._generate(prompts, seeds, [last] * len(now), names), strict=True))
        return [replies[i] for i in range(len(asked))]

    def open(self, example: Example, view: View, seed: Seed, sample: int = 0) -> Conversation:
        """A conversation in which nothing was said yet, to be played turn by turn through `reply`."""
        context = DirtyContext(self.renderer, example, self.history)
        name = "/".join(map(str, numbered((derive(*seed), example.id), sample)))
        return Conversation(example, view, context=context, session=name)

    def reply(
        self, played: Sequence[Conversation], users: Sequence[str], seeds: Sequence[int], last: Sequence[bool]
    ) -> None:
        """What each user says next, and the reply to it. `last`: no further turn is expected."""
        contexts = [c.context for c in played if c.context]  # every one that `open` made has one
        prompts = [context.ask(user) for context, user in zip(contexts, users, strict=True)]
        names = [f"example {c.example.id!r}, turn {len(c.turns) + 1}" for c in played]
        sessions = [Session(c.session, not ends) for c, ends in zip(played, last, strict=True)]
        turns = self._generate(prompts, seeds, last, names, sessions)
        for conversation, context, user, turn in zip(played, contexts, users, turns, strict=True):
            context.answer(turn.reply)
            conversation.asked.append(user)
            conversation.turns.append(turn)
        self.heard(len(played))

    def _generate(
        self, prompts: Sequence[list[int]], seeds: Sequence[int], last: Sequence[bool], names: Sequence[str],
        sessions: Sequence[Session] = (),
    ) -> list[Turn]:  # fmt: skip
        """A reply to every prompt, as long as its limit or what the model's context still takes."""
        rooms = []
        for prompt, ends, name in zip(prompts, last, names, strict=True):
            limit = self.sampling.max_tokens if ends else self.middle_tokens
            rooms.append(room_left(self.renderer, prompt, limit, name))
        turns = [Turn(tuple(prompt), (), Stop.LENGTH, "") for prompt in prompts]
        for room in sorted({*rooms} - {0}):  # one batch has one token limit
            now = [i for i, one in enumerate(rooms) if one == room]
            sampling = replace(self.sampling, max_tokens=room)
            known = [sessions[i] for i in now] if sessions else None
            batch = [prompts[i] for i in now], [seeds[i] for i in now]
            replies = self.engine.generate(*batch, sampling, known)
            for i, reply in zip(now, replies, strict=True):
                text = self.renderer.decode(reply.ids)
                turns[i] = Turn(turns[i].context, reply.ids, reply.stop, text, reply.logps)
        return turns

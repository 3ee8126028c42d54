"""Plays conversations against any engine, turn by turn, those of a batch side by side."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from smopd.chat.messages import Clean, View, clean_messages, user_turns
from smopd.chat.template import DirtyContext, History, Renderer, room_left
from smopd.data import Example
from smopd.rollout.engine import Dialogue, Engine, ReplyRequest, Sampling, Session, Stop, converse_in_rounds
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


UNANSWERED = Turn((), (), Stop.LENGTH, "")


@dataclass(frozen=True)
class ConversationRequest:
    """A conversation to be played; `sample` tells those of one example and seed apart."""

    example: Example
    view: View
    seed: Seed
    sample: int = 0
    max_turns: int | None = None  # it is cut after so many


@dataclass(frozen=True)
class Driver:
    """Plays conversations with one engine; `middle_tokens` bounds every reply but a conversation's last."""

    engine: Engine
    renderer: Renderer
    sampling: Sampling
    middle_tokens: int
    history: History = "template"
    clean: Clean = "separate"  # how the view teacher is told the user turns
    heard: Callable[[int], None] = lambda replies: None  # told of every reply, for a progress line

    def play(self, examples: Sequence[Example], view: View, seed: Seed) -> list[Conversation]:
        return self.play_all([ConversationRequest(example, view, seed) for example in examples])

    def play_all(
        self, requests: Sequence[ConversationRequest], continuous: bool = False
    ) -> list[Conversation]:
        """`continuous`: no conversation waits for another one even where the engine samples with the trained
        module; by itself that keeps to rounds, whose bits are those of earlier versions.
        """
        played = [self.open(t.example, t.view, t.seed, t.sample) for t in requests]
        dialogues = [d for c, t in zip(played, requests, strict=True) for d in self._dialogues(c, t)]
        self._run(dialogues, continuous)
        return played

    def _dialogues(self, conversation: Conversation, request: ConversationRequest) -> list[Dialogue]:
        """The whole conversation; of a teacher, whose replies do not depend on each other, a turn each."""
        example, view = request.example, request.view
        users = user_turns(example, view)
        if view == "teacher":
            conversation.asked, conversation.turns = [*users], [UNANSWERED] * len(users)
            return [self._ask_clean(request, turn, conversation.turns, turn) for turn in range(len(users))]
        conversation.cut = request.max_turns is not None and request.max_turns < len(users)
        of = [numbered((example.id, turn), request.sample) for turn in range(len(users))]
        seeds = [derive(*request.seed, view, *numbers) for numbers in of]
        steps = list(zip(users, seeds, [False] * (len(users) - 1) + [True], strict=True))
        return [self._converse(conversation, steps[: request.max_turns])]

    def _run(self, dialogues: Sequence[Dialogue], continuous: bool = False) -> None:
        converse = getattr(self.engine, "converse", None)  # engines of users may have `generate` alone
        if converse and (continuous or not self.engine.traits.in_place):
            converse(dialogues, self.sampling)
        else:
            converse_in_rounds(self.engine, dialogues, self.sampling)

    def recite(self, example: Example, text: str) -> Conversation:
        """The whole task in one message with a given reply to it; nothing is sampled."""
        prompt = DirtyContext(self.renderer, example).ask(example.full)
        reply = (*self.renderer.encode(text), self.renderer.end_of_turn)
        return Conversation(example, "full", [example.full], [Turn(tuple(prompt), reply, Stop.END, text)])

    def answer_clean(self, asked: Sequence[tuple[Example, int, int]], seed: Seed) -> list[Turn]:
        """A reply to each (example, turn, sample) in the context a teacher sees for that turn."""
        turns = [UNANSWERED] * len(asked)
        requests = [(ConversationRequest(e, "teacher", seed, sample), turn) for e, turn, sample in asked]
        self._run([self._ask_clean(t, turn, turns, i) for i, (t, turn) in enumerate(requests)])
        return turns

    def _ask_clean(self, request: ConversationRequest, turn: int, turns: list[Turn], place: int) -> Dialogue:
        example = request.example
        prompt = self.renderer.ids(clean_messages(example, turn, self.clean))
        seed = derive(*request.seed, "teacher", *numbered((example.id, turn), request.sample))
        name, last = f"example {example.id!r}, turn {turn + 1} of TEACHER", turn == len(example.shards) - 1
        turns[place] = yield from self._ask(prompt, seed, last, name, Session("", False))

    def open(self, example: Example, view: View, seed: Seed, sample: int = 0) -> Conversation:
        """A conversation in which nothing was said yet, to be played turn by turn through `reply`."""
        context = DirtyContext(self.renderer, example, self.history)
        name = "/".join(map(str, numbered((derive(*seed), view, example.id), sample)))
        return Conversation(example, view, context=context, session=name)

    def reply(
        self, played: Sequence[Conversation], users: Sequence[str], seeds: Sequence[int], last: Sequence[bool]
    ) -> None:
        """What each user says next, and the reply to it. `last`: no further turn is expected."""
        steps = zip(played, users, seeds, last, strict=True)
        self._run([self._converse(conversation, [step]) for conversation, *step in steps])

    def _converse(self, conversation: Conversation, steps: Sequence[Sequence[Any]]) -> Dialogue:
        """Turns of a conversation: what the user says, the reply's seed, and whether it is the last one."""
        context, example = conversation.context, conversation.example
        assert context is not None  # `open` makes one
        for user, seed, last in steps:
            name = f"example {example.id!r}, turn {len(conversation.turns) + 1}"
            prompt, session = context.ask(user), Session(conversation.session, not last)
            turn = yield from self._ask(prompt, seed, last, name, session)
            context.answer(turn.reply)
            conversation.asked.append(user)
            conversation.turns.append(turn)

    def _ask(
        self, prompt: list[int], seed: int, last: bool, name: str, session: Session
    ) -> Generator[ReplyRequest, Any, Turn]:
        """A reply as long as its limit or what the model's context still takes."""
        limit = self.sampling.max_tokens if last else self.middle_tokens
        room = room_left(self.renderer, prompt, limit, name)
        if not room:
            return Turn(tuple(prompt), (), Stop.LENGTH, "")
        reply = yield ReplyRequest(prompt, seed, room, session)
        self.heard(1)
        return Turn(tuple(prompt), reply.ids, reply.stop, self.renderer.decode(reply.ids), reply.logps)

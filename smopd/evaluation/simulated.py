"""LiC's own protocol: a model plays the user, reveals at most one shard a turn, and every attempt is scored.

A classifier labels each reply; an attempt is extracted and verified, and the conversation ends at the first
correct one, or once all shards are told. User, classifier and extractor are one OpenAI-compatible endpoint;
if it fails after all retries, the next shard is told verbatim and the whole reply is verified as an attempt.
The prompts are not LiC's, so figures are only roughly comparable.
"""

import json
import logging
import threading
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from smopd.chat.messages import Message
from smopd.data import Example
from smopd.evaluation.evaluate import Player
from smopd.rollout.driver import Conversation
from smopd.rollout.openai import ChatEndpoint
from smopd.seeds import derive
from smopd.settings import EngineSettings, UserSettings
from smopd.verify import Verdict, tasks, verify_all

log = logging.getLogger("smopd")
T = TypeVar("T")
Read = Callable[[dict[str, Any]], T | None]  # parses an answer's JSON object; None: unusable

_TEXTS = tomllib.loads(Path(__file__).with_name("simulated.toml").read_text(encoding="utf-8"))
KINDS: dict[str, str] = _TEXTS["kinds"]
WORDS, JUDGED, EXTRACTED = 400, 100, 2048  # token limits: the user's message, a label, an extracted answer


@dataclass
class _State:
    conversation: Conversation
    revealed: list[int]
    verdicts: list[Verdict] = field(default_factory=list)
    message: str = ""
    kind: str = ""
    extracted: str = ""
    seed: tuple[int | str, ...] = ()

    @property
    def complete(self) -> bool:
        return len(self.revealed) == len(self.conversation.example.shards)

    @property
    def over(self) -> bool:
        return bool(self.verdicts) and (self.verdicts[-1].correct or self.complete)


class SimulatedUser:
    """Plays the user of the view `simulated`. `unusable` counts requests without a usable answer."""

    def __init__(self, settings: UserSettings, pause: float = 1.0) -> None:
        shared = settings.model_dump(exclude={"temperature"})
        self.endpoint = ChatEndpoint(EngineSettings(kind="openai", **shared), pause)
        self.settings, self.unusable, self._counting = settings, 0, threading.Lock()

    def converse(
        self, player: Player, examples: Sequence[Example], seed: Sequence[int | str]
    ) -> list[tuple[Conversation, list[Verdict]]]:
        """Play the examples; return conversations with a verdict on each reply, no_answer if no attempt."""
        self.endpoint.model()  # resolved once here: the threads only read it
        states = [_State(player.open(e, "simulated", seed), []) for e in examples]
        before, turn = self.unusable, 0
        while going := [s for s in states if not s.over]:
            for s in going:
                s.seed = (*seed, turn)
            self.endpoint.each(self._say, going)
            seeds = [derive(*seed, "simulated", s.conversation.example.id, turn) for s in going]
            last = [s.complete for s in going]
            player.reply([s.conversation for s in going], [s.message for s in going], seeds, last)
            self.endpoint.each(self._classify, going)
            attempts = [s for s in going if s.kind == "answer"]
            verdicts = iter(verify_all([(s.conversation.example, s.extracted) for s in attempts]))
            for s in going:
                no_attempt = Verdict(False, None, "no_answer", f"not an answer attempt but a {s.kind}")
                s.verdicts.append(next(verdicts) if s.kind == "answer" else no_attempt)
            turn += 1
        if self.unusable > before:
            message = "%d answers of the model that plays the user could not be used, after all tries"
            log.warning(message, self.unusable - before)
        return [(s.conversation, s.verdicts) for s in states]

    def _say(self, state: _State) -> None:
        """Set the user's next message: the first shard verbatim, a later one in the model's words."""
        shards = state.conversation.example.shards
        hidden = [i for i in range(len(shards)) if i not in state.revealed]

        def read(answer: dict[str, Any]) -> tuple[int, str] | None:
            fact, message = answer.get("fact"), answer.get("message")
            if isinstance(fact, int) and fact - 1 in hidden and isinstance(message, str) and message.strip():
                return fact - 1, message.strip()
            return None

        shard, state.message = hidden[0], shards[hidden[0]]
        if state.revealed:
            lists = ["\n".join(f"{i + 1}. {shards[i]}" for i in which) for which in (hidden, state.revealed)]
            prompt = _TEXTS["say"].format(hidden=lists[0], told=lists[1], talk=_talk(state.conversation))
            if answer := self._ask(state, "say", prompt, self.settings.temperature, WORDS, read):
                shard, state.message = answer
        state.revealed.append(shard)

    def _classify(self, state: _State) -> None:
        conversation, reply = state.conversation, state.conversation.turns[-1].text
        if not reply.strip():
            state.kind = "missing"
            return
        kinds = "\n".join(f"{name}: {meaning}" for name, meaning in KINDS.items())
        prompt = _TEXTS["label"].format(kinds=kinds, talk=_talk(conversation), names=", ".join(KINDS))

        def label(answer: dict[str, Any]) -> str | None:
            return kind if (kind := str(answer.get("kind", "")).strip().lower()) in KINDS else None

        state.kind = self._ask(state, "label", prompt, 0.0, JUDGED, label) or "answer"
        state.extracted = reply
        if state.kind == "answer":
            task = tasks.find(conversation.example.task)
            prompt = _TEXTS["extract"].format(form=task.answer_form if task else "", reply=reply)
            copied = self._ask(state, "extract", prompt, 0.0, EXTRACTED, lambda a: _keep_if_copied(a, reply))
            state.extracted = copied or reply

    def _ask(
        self, state: _State, what: str, prompt: str, temperature: float, max_tokens: int, read: Read[T]
    ) -> T | None:
        """Return what `read` makes of the endpoint's JSON; None if all retries were unusable."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        for attempt in range(self.settings.retries + 1):
            seed = derive(*state.seed, what, state.conversation.example.id, attempt)
            reply = self.endpoint.text(messages, temperature, max_tokens, seed)
            if (value := read(_parse_object(reply))) is not None:
                return value
        with self._counting:
            self.unusable += 1
        return None


def _talk(conversation: Conversation) -> str:
    pairs = zip(conversation.asked, conversation.turns, strict=True)
    return "\n\n".join(f"Person: {user}\n\nAssistant: {turn.text}" for user, turn in pairs)


def _parse_object(text: str) -> dict[str, Any]:
    """The JSON object in an answer, whatever text surrounds it; empty if there is none."""
    try:
        parsed = json.loads(text[text.find("{") : text.rfind("}") + 1], strict=False)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _keep_if_copied(answer: dict[str, Any], reply: str) -> str | None:
    """The extracted answer if it occurs in the reply: the extractor must not solve the task."""
    text = answer.get("answer")
    plain = " ".join(text.split()) if isinstance(text, str) else ""
    return text if plain and plain in " ".join(reply.split()) else None

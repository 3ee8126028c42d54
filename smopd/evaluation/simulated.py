"""LiC's own protocol: a model plays the user, reveals at most one shard a turn in its own words, and every
attempt is scored.

After each reply a classifier says what kind of reply it is; an answer attempt is extracted and verified, and
the conversation ends at the first correct one, or once all shards are told. All three parts are asked of one
OpenAI-compatible endpoint, in our own words. An answer of the endpoint that cannot be used is asked for
again; if that does not help either, the next shard is told verbatim, a reply counts as an attempt, and the
whole reply is what is verified: the plain protocol's rules. It leaves out LiC's exact prompts, so figures are
comparable in kind, not to the decimal.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from smopd.chat.template import Message
from smopd.data import Example
from smopd.evaluation.evaluate import Player
from smopd.rollout.driver import Conversation
from smopd.rollout.engine import Sampling
from smopd.rollout.openai import ChatEndpoint, side_by_side
from smopd.seeds import derive
from smopd.settings import Engine as EngineSettings
from smopd.settings import User as UserSettings
from smopd.verify import tasks
from smopd.verify.verifiers import Verdict, verify_all

log = logging.getLogger("smopd")

KINDS = {
    "answer": "it commits to a complete answer to the request, even if it also explains or asks something",
    "clarification": "it asks the user one question about the request",
    "interrogation": "it asks the user several questions",
    "discussion": "it talks about the request without answering it",
    "hedge": "it offers several different answers, for different readings of the request",
    "refusal": "it declines to answer",
    "missing": "it is empty or has nothing to do with the request",
}
WORDS, JUDGED, EXTRACTED = 400, 100, 2048  # tokens for the user's message, a label, an extracted answer
_SAY = """You play a person who talks with an assistant and wants a task done. You know the whole task as a list of facts, \
but you are casual and tell only a little at a time.

Facts not told yet:
{hidden}

Facts already told:
{told}

The conversation so far:
{talk}

Write the person's next message. Tell exactly one fact that is not told yet: the one that best answers what the assistant asked, \
otherwise the first of the list. Keep every number, name and value of it, put it in your own short words, tell nothing of the \
other facts, and neither solve the task nor comment on the assistant's work.
Answer with JSON alone: {{"fact": <number of the fact>, "message": "<the message>"}}"""
_LABEL = """A person revealed a task to an assistant over several messages. What kind of reply is the assistant's last one?

{kinds}

The conversation:
{talk}

Answer with JSON alone: {{"kind": "<one of: {names}>"}}"""
_EXTRACT = """From the reply below copy the final answer to the task, character by character and with nothing added. {form}

The reply:
{reply}

Answer with JSON alone: {{"answer": "<the copied text>"}}"""


@dataclass
class _State:
    conversation: Conversation
    told: list[int]
    verdicts: list[Verdict] = field(default_factory=list)
    message: str = ""
    kind: str = ""
    extracted: str = ""


class SimulatedUser:
    """Plays the user of the view `simulated`. `unusable` counts the answers of its endpoint that were given
    up.
    """

    def __init__(self, settings: UserSettings, pause: float = 1.0) -> None:
        shared = settings.model_dump(exclude={"temperature"})
        self.endpoint = ChatEndpoint(EngineSettings(kind="openai", **shared), pause)
        self.settings = settings
        self.unusable = 0
        self._counting = threading.Lock()

    def converse(
        self, player: Player, examples: Sequence[Example], seed: Sequence[int | str]
    ) -> list[tuple[Conversation, list[Verdict]]]:
        """Every example as a conversation, with a verdict on each reply; what is no attempt has the status
        no_answer.
        """
        self.endpoint.model()  # asked for here, once: the threads only read it
        states = [_State(player.open(e, "simulated", seed), []) for e in examples]
        before, turn = self.unusable, 0
        while going := [s for s in states if not _over(s)]:
            self._all(going, partial(self._say, (*seed, turn)))
            seeds = [derive(*seed, "simulated", s.conversation.example.id, turn) for s in going]
            last = [len(s.told) == len(s.conversation.example.shards) for s in going]
            player.reply([s.conversation for s in going], [s.message for s in going], seeds, last)
            self._all(going, partial(self._classify, (*seed, turn)))
            attempts = [s for s in going if s.kind == "answer"]
            found = iter(verify_all([(s.conversation.example, s.extracted) for s in attempts]))
            for s in going:
                no_attempt = Verdict(False, None, "no_answer", f"not an answer attempt but a {s.kind}")
                s.verdicts.append(next(found) if s.kind == "answer" else no_attempt)
            turn += 1
        if self.unusable > before:
            log.warning(
                "%d answers of the model that plays the user could not be used, after all tries",
                self.unusable - before,
            )
        return [(s.conversation, s.verdicts) for s in states]

    def _all(self, states: Sequence[_State], work: Callable[[_State, threading.Event], None]) -> None:
        side_by_side(work, states, self.endpoint.width)

    def _say(self, seed: Sequence[int | str], state: _State, stopped: threading.Event) -> None:
        """The user's next message: the first shard as it is, a further one in the model's words."""
        shards = state.conversation.example.shards
        hidden = [i for i in range(len(shards)) if i not in state.told]
        state.message, chosen = shards[hidden[0]], hidden[0]
        if state.told and (said := self._told(state, hidden, seed, stopped)):
            chosen, state.message = said
        state.told.append(chosen)

    def _told(
        self, state: _State, hidden: list[int], seed: Sequence[int | str], stopped: threading.Event
    ) -> tuple[int, str] | None:
        shards = state.conversation.example.shards
        listed = {name: "\n".join(f"{i + 1}. {shards[i]}" for i in which) for name, which in
                  (("hidden", hidden), ("told", state.told))}  # fmt: skip
        prompt = _SAY.format(**listed, talk=_talk(state.conversation))

        def read(answer: dict[str, Any]) -> tuple[int, str] | None:
            fact, message = answer.get("fact"), answer.get("message")
            if isinstance(fact, int) and fact - 1 in hidden and isinstance(message, str) and message.strip():
                return fact - 1, message.strip()
            return None

        return self._ask(
            prompt, Sampling(self.settings.temperature, WORDS), (*seed, "say"), state, read, stopped
        )

    def _classify(self, seed: Sequence[int | str], state: _State, stopped: threading.Event) -> None:
        """What kind of reply the last one is, and where it is an attempt, the answer in it."""
        conversation = state.conversation
        reply = conversation.turns[-1].text
        if not reply.strip():
            state.kind = "missing"
            return
        kinds = "\n".join(f"{name}: {meaning}" for name, meaning in KINDS.items())
        prompt = _LABEL.format(kinds=kinds, talk=_talk(conversation), names=", ".join(KINDS))

        def label(answer: dict[str, Any]) -> str | None:
            kind = str(answer.get("kind", "")).strip().lower()
            return kind if kind in KINDS else None

        state.kind = (
            self._ask(prompt, Sampling(0.0, JUDGED), (*seed, "label"), state, label, stopped) or "answer"
        )
        state.extracted = reply
        if state.kind == "answer":
            task = tasks.find(conversation.example.task)
            prompt = _EXTRACT.format(form=task.answer_form if task else "", reply=reply)
            copied = self._ask(
                prompt,
                Sampling(0.0, EXTRACTED),
                (*seed, "extract"),
                state,
                lambda a: _copied(a, reply),
                stopped,
            )
            state.extracted = copied or reply

    def _ask(
        self,
        prompt: str,
        sampling: Sampling,
        seed: Sequence[int | str],
        state: _State,
        read: Callable[[dict[str, Any]], Any],
        stopped: threading.Event,
    ) -> Any:
        """What `read` makes of the endpoint's JSON; None when no try brought something it can use."""
        messages: list[Message] = [{"role": "user", "content": prompt}]
        for attempt in range(self.settings.retries + 1):
            drawn = derive(*seed, state.conversation.example.id, attempt)
            answer = _object(self.endpoint.reply(messages, sampling, drawn, stopped).text)
            found = read(answer) if answer is not None else None
            if found is not None:
                return found
        with self._counting:
            self.unusable += 1
        return None


def _over(state: _State) -> bool:
    return bool(state.verdicts) and (
        state.verdicts[-1].correct or len(state.told) == len(state.conversation.example.shards)
    )


def _talk(conversation: Conversation) -> str:
    said = zip(conversation.asked, conversation.turns, strict=True)
    return "\n\n".join(f"Person: {user}\n\nAssistant: {turn.text}" for user, turn in said)


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object of an answer, whatever stands around it."""
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1], strict=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _copied(answer: dict[str, Any], reply: str) -> str | None:
    """The extracted answer, if it really stands in the reply: an extractor must not solve the task."""
    text = answer.get("answer")
    plain = " ".join(text.split()) if isinstance(text, str) else ""
    return text if plain and plain in " ".join(reply.split()) else None

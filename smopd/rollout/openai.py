"""Evaluation against any OpenAI-compatible chat endpoint: messages in, text out, no model, no tokenizer."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from smopd.chat.messages import Clean, Message, View, clean_messages, system_messages, user, user_turns
from smopd.data import Example
from smopd.errors import UserError
from smopd.formatting import one_line
from smopd.rollout.driver import Conversation, Seed, Turn
from smopd.rollout.engine import TRAITS, Sampling, Stop
from smopd.rollout.http import CURRENT, Body, Client, Rejected, Unreachable
from smopd.rollout.pool import Pool, Server
from smopd.seeds import derive
from smopd.settings import EngineSettings

log = logging.getLogger("smopd")
T = TypeVar("T")

CHAT, MODELS = "/v1/chat/completions", "/v1/models"
SHOWN = 500  # characters of a server's words that go into a message


class ChatEndpoint:
    """The servers of `[engine]`, asked for a completion at a time; `unreadable`: replies without a text."""

    traits = TRAITS["openai"]

    def __init__(self, settings: EngineSettings, pause: float = 1.0) -> None:
        if not settings.servers:
            advice = "give its base URL with --url, e.g. --url http://localhost:8000"
            raise UserError(f"engine.servers: no endpoint is named; {advice}")
        self.settings = settings
        self._limit, self.unreadable = "max_tokens", 0
        self._pool = Pool(Server, settings, pause)
        self.width = self._pool.width  # requests that may be in flight together
        self._client = Client(settings.api_key_env, proxies=True)
        self._name, self._lock = settings.model, threading.Lock()

    def model(self) -> str:
        """The served model's name: the configured one, else the first that the endpoint lists."""
        with self._lock:
            if not self._name:
                names = self._ask(MODELS, None, _names)
                if not names:
                    url = self._pool.servers[0].url + MODELS
                    raise UserError(f"{url}: lists no model; name the served one with --served-model")
                self._name = names[0]
            return self._name

    def reply(self, messages: Sequence[Message], sampling: Sampling, seed: int) -> Turn:
        """The reply to a conversation. An answer that stays unreadable is an empty reply."""
        # Every further setting is refused by some endpoint; a seed of 31 bits is one that every server takes.
        body: dict[str, Any] = {"model": self.model(), "messages": list(messages), "seed": seed % 2**31}
        body["temperature"], limit = sampling.temperature, self._limit
        try:
            turn = self._ask(CHAT, body | {limit: sampling.max_tokens}, _chat_reply)
        except UserError as refusal:
            if limit != "max_tokens" or "max_completion_tokens" not in str(refusal):
                raise
            self._limit = "max_completion_tokens"  # OpenAI's newer models know the limit only by this name
            turn = self._ask(CHAT, body | {self._limit: sampling.max_tokens}, _chat_reply)
        if turn is None:
            with self._lock:
                self.unreadable += 1
        return turn or Turn((), (), Stop.END, "")

    def text(self, messages: Sequence[Message], temperature: float, max_tokens: int, seed: int) -> str:
        return self.reply(messages, Sampling(temperature, max_tokens), seed).text

    def each(self, work: Callable[[T], None], items: Sequence[T]) -> None:
        self._pool.run(work, items)

    def _ask(self, path: str, body: Body, read: Callable[[Any], T | None]) -> T | None:
        """What `read` makes of the answer; None when it can make nothing of that of the last try."""
        seed = (body or {}).get("seed", 0)

        def send(server: Server) -> tuple[str, Any]:
            url = server.url + path
            try:
                return url, self._client.request(url, body, self.settings.timeout)
            except Rejected as error:
                hint = self._hint(server, error.status)
                raise UserError(f"{url}: refused: {one_line(error, SHOWN)}\n{hint}") from None

        for attempt in range(self.settings.retries + 1):
            if attempt:
                CURRENT.get().wait(self._pool.backoff(attempt - 1, seed))
            url, answer = self._pool.ask(send, seed)
            if (result := read(answer)) is not None:
                return result
        if not self.unreadable:  # the first of them is shown, the others are counted
            shown = self._client.shown(answer or "(empty)", SHOWN)
            log.warning("%s: nothing can be read from this answer: %s", url, shown)
        return None

    def _hint(self, server: Server, status: int) -> str:
        name = self.settings.api_key_env
        if status in (401, 403) and self._client.key:
            advice = "put one that may use this model into that environment variable"
            return f"it was sent the key in {name}: {advice}"
        if status in (401, 403):
            name = name or "that --set engine.api_key_env=NAME names"
            return f"no key was sent: put one into the environment variable {name}"
        if 300 <= status < 400:
            why = "the address redirects (http instead of https?), and the key is not sent on"
            return f"{why}; give the final one with --url"
        if status in (404, 405):
            with suppress(Rejected, Unreachable):
                if served := _names(self._client.request(server.url + MODELS, timeout=5.0)):
                    return f"it serves {one_line(', '.join(served[:10]))}: name one with --served-model"
            name = "--served-model the name under which it serves the model"
            return f"see that --url is the base URL of a chat endpoint and {name}"
        sent = f"it was sent the model's name {self._name!r}, a temperature, a token limit and a seed"
        options = "--set eval.temperature=T, --set eval.tokens=N or --set eval.middle_tokens=N"
        return f"{sent}; change what it refuses with --served-model, {options}"


@dataclass(frozen=True)
class ChatDriver:
    """Plays conversations with an endpoint; the counterpart of `Driver` where there are no token ids."""

    endpoint: ChatEndpoint
    sampling: Sampling
    middle_tokens: int
    clean: Clean = "separate"  # how the view teacher is told the user turns
    heard: Callable[[int], None] = lambda replies: None  # told of every reply, from any thread

    def play(self, examples: Sequence[Example], view: View, seed: Seed) -> list[Conversation]:

        def converse(conversation: Conversation) -> None:
            users = user_turns(conversation.example, view)
            for turn, text in enumerate(users):
                turn_seed = derive(*seed, view, conversation.example.id, turn)
                self._turn(conversation, text, turn_seed, turn == len(users) - 1)

        played = [self.open(e, view, seed) for e in examples]
        self._each(converse, played, played)
        return played

    def open(self, example: Example, view: View, seed: Seed) -> Conversation:
        return Conversation(example, view)

    def reply(
        self, played: Sequence[Conversation], users: Sequence[str], seeds: Sequence[int], last: Sequence[bool]
    ) -> None:
        self._each(lambda turn: self._turn(*turn), list(zip(played, users, seeds, last, strict=True)), played)

    def _each(self, work: Callable[[T], None], items: Sequence[T], played: Sequence[Conversation]) -> None:
        self.endpoint.model()  # asked for here, once: the threads only read it
        before = self.endpoint.unreadable
        self.endpoint.each(work, items)
        if empty := self.endpoint.unreadable - before:
            share = f"{empty} of {sum(len(c.turns) for c in played)} replies"
            log.warning("%s could not be read, after all tries, and count as empty", share)

    def _turn(self, played: Conversation, text: str, seed: int, last: bool) -> None:
        if played.view == "teacher":
            messages = clean_messages(played.example, len(played.turns), self.clean)
        else:
            messages = system_messages(played.example)
            for asked, turn in zip(played.asked, played.turns, strict=True):
                messages += [user(asked), {"role": "assistant", "content": turn.text}]
            messages.append(user(text))
        sampling = self.sampling if last else replace(self.sampling, max_tokens=self.middle_tokens)
        played.turns.append(self.endpoint.reply(messages, sampling, seed))
        played.asked.append(text)
        self.heard(1)


def _chat_reply(answer: Any) -> Turn | None:
    try:
        (choice,) = answer["choices"]  # one was asked for
        text, finish = choice["message"].get("content"), choice.get("finish_reason")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if text is None and finish == "length":
        text = ""  # a model that spent all its tokens on its thoughts: another try would end the same
    if not isinstance(text, str):
        return None
    usage = answer.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    # Half a surrogate pair is valid in JSON and cannot be written to a file.
    text = text.encode("utf-8", "replace").decode("utf-8")
    stop = Stop.LENGTH if finish == "length" else Stop.END
    return Turn((), (), stop, text, tokens=tokens if type(tokens) is int and tokens >= 0 else None)


def _names(answer: Any) -> list[str] | None:
    try:
        names = [model["id"] for model in answer["data"]]
    except (KeyError, TypeError):
        return None
    return names if all(isinstance(name, str) and name for name in names) else None

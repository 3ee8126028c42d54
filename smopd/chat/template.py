"""A model's chat template as a renderer: messages in, token ids out. What a template refuses (two user turns
in a row, a system message) is found out by rendering a probe, never guessed from a name.

Then dirty contexts, what the student saw, its replies in the history; and whether conversations fit into the
model's context: what cannot is refused, what does not is cut.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import TemplateError

from smopd.chat.messages import Message, View, clean_messages, system_messages, user, user_turns
from smopd.data import Example
from smopd.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

log = logging.getLogger("smopd")
History = Literal["template", "verbatim"]

MARKUP = 64  # tokens that a template may add to a message
# Words that no template changes and that are found again in the rendered text.
_PROBES = ("probealpha", "probebravo", "probecharlie")


class Renderer:
    """Renders contexts through one tokenizer's chat template."""

    def __init__(
        self, tokenizer: Tokenizer, thinking: bool = False, end_ids: Sequence[int] = (), vocabulary: int = 0,
        context_length: int = 0,
    ) -> None:  # fmt: skip
        """`context_length`: tokens of context and reply that the model takes; 0 where that is not known."""
        name, eos = tokenizer.name_or_path, tokenizer.eos_token_id
        if not tokenizer.chat_template:
            raise UserError(f"{name}: the tokenizer has no chat template; smopd trains chat models")
        self.tokenizer, self.thinking, self.context_length = tokenizer, thinking, context_length
        self.vocabulary = vocabulary or len(tokenizer)  # a model may have more rows than its tokenizer tokens
        self.end_ids = tuple(dict.fromkeys([*end_ids, *([eos] if eos is not None else [])]))
        if not self.end_ids:
            raise UserError(f"{name}: neither the model nor the tokenizer names an end-of-turn token")
        self.folds_system = self.merges_users = False  # while probes are rendered: the template as it is
        a, b, c = _PROBES
        if not self._takes([user(a)], [a]):
            raise UserError(f"{name}: the chat template cannot render a single user message")
        self.folds_system = not self._takes([{"role": "system", "content": a}, user(b)], [a, b])
        self.merges_users = not self._takes([user(a), user(b), user(c)], [a, b, c])
        if self.folds_system:
            log.warning("the chat template takes no system message: it goes into the first user turn")
        if self.merges_users:
            refused = "the chat template refuses two user turns in a row"
            log.warning("%s: in clean contexts they are merged into one", refused)

    def text(self, messages: Sequence[Message], generation_prompt: bool = True) -> str:
        """The rendered text of a context, with the prompt for the reply."""
        how: Any = {"add_generation_prompt": generation_prompt, "enable_thinking": self.thinking}
        rendered = self.tokenizer.apply_chat_template(self._fit(messages), tokenize=False, **how)
        assert isinstance(rendered, str)
        return rendered

    def ids(self, messages: Sequence[Message]) -> list[int]:
        return self.encode(self.text(messages))

    def encode(self, text: str) -> list[int]:
        """Token ids of template text; the template writes every special token itself, so none is added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, reply: Sequence[int], special: bool = False) -> str:
        """What a user sees of a reply: without its end-of-turn token and other special ones."""
        how: Any = {"skip_special_tokens": not special, "clean_up_tokenization_spaces": False}
        text = self.tokenizer.decode([*reply], **how)
        assert isinstance(text, str)
        return text

    def pieces(self, ids: Sequence[int]) -> dict[int, str]:
        """The text of each token inside a text: some tokenizers drop the space of a first one."""
        before = self.encode("a")[-1:]
        known = len(self.decode(before, special=True))
        return {i: self.decode([*before, i], special=True)[known:] for i in ids}

    def continuation(self, messages: Sequence[Message], text: str) -> list[int]:
        """The ids between a reply to `messages` and the next one: end of turn, user turn, prompt."""
        mark = _PROBES[0]
        rendered = self.text([*messages, {"role": "assistant", "content": mark}, user(text)])
        if rendered.count(mark) != 1:
            needs = "needs a template that keeps replies in the history as they are; this one does not"
            raise UserError(f"chat.history = 'verbatim' {needs}: use chat.history = 'template'")
        return self.encode(rendered.split(mark)[1])

    @cached_property
    def end_of_turn(self) -> int:
        """The end token that the template itself puts behind a reply, else the first that ends one."""
        try:
            behind = self.continuation([user(_PROBES[1])], _PROBES[2])[0]
        except (UserError, IndexError):
            return self.end_ids[0]
        return behind if behind in self.end_ids else self.end_ids[0]

    def _fit(self, messages: Sequence[Message]) -> list[Message]:
        fitted = [dict(m) for m in messages]
        if self.folds_system and fitted and fitted[0]["role"] == "system":
            system = fitted.pop(0)["content"]
            fitted[0]["content"] = f"{system}\n\n{fitted[0]['content']}"
        merged: list[Message] = []
        for message in fitted:
            if self.merges_users and merged and message["role"] == merged[-1]["role"] == "user":
                merged[-1]["content"] += f"\n\n{message['content']}"
            else:
                merged.append(message)
        return merged

    def _takes(self, messages: list[Message], probes: list[str]) -> bool:
        try:
            rendered = self.text(messages)
        except (TemplateError, ValueError, TypeError, KeyError):
            return False
        places = [rendered.find(probe) for probe in probes]
        return places == sorted(places) and all(rendered.count(probe) == 1 for probe in probes)


class DirtyContext:
    """The growing context of one conversation. `template` renders the history anew each turn, as a server
    would; `verbatim` keeps sampled tokens and appends what the template puts between two replies.
    """

    def __init__(self, renderer: Renderer, example: Example, history: History = "template") -> None:
        self.renderer, self.history = renderer, history
        self.messages: list[Message] = system_messages(example)
        self.ids: list[int] = []

    def ask(self, text: str) -> list[int]:
        """Add what the user says; the ids to sample the reply from."""
        self.messages.append(user(text))
        if self.history == "verbatim" and self.ids:
            # Without a final end token: the continuation brings the template's own.
            closed = self.ids[:-1] if self.ids[-1] in self.renderer.end_ids else self.ids
            # Without the reply before: it stays as sampled ids.
            self.ids = closed + self.renderer.continuation(self.messages[:-2], text)
        else:
            self.ids = self.renderer.ids(self.messages)
        return list(self.ids)

    def answer(self, reply: Sequence[int]) -> None:
        self.messages.append({"role": "assistant", "content": self.renderer.decode(reply)})
        if self.history == "verbatim":
            self.ids = [*self.ids, *reply]


def refuse_too_long(renderer: Renderer, examples: Sequence[Example], views: Sequence[View]) -> None:
    """A UserError for examples with a turn that leaves no room to answer, were every earlier reply empty."""
    limit = renderer.context_length
    too_long: dict[str, str] = {}
    for view in views if limit else ():
        known: View = "sharded" if view == "simulated" else view  # whose user turns are known
        for example in examples:
            texts = (example.system, *user_turns(example, known))
            # Text has at most one token a byte: what is short enough in bytes need not be rendered.
            if example.id in too_long or sum(len(text.encode()) + 2 * MARKUP for text in texts) < limit:
                continue
            for turn, tokens in enumerate(_measure_shortest(renderer, example, known), 1):
                if tokens >= limit:
                    where = f"example {example.id!r}, turn {turn} of {view.upper()}"
                    too_long[example.id] = f"{where}: {tokens:,} tokens before the reply"
                    break
    if too_long:
        first, *more = too_long.values()
        others = f" (and {len(more)} more examples)" if more else ""
        advice = "leave such examples out, or take a model with a longer context"
        raise UserError(f"{first}, and the model's context has {limit:,}{others}; {advice}")


def _measure_shortest(renderer: Renderer, example: Example, view: View) -> Iterator[int]:
    """Tokens before the reply of each turn, where earlier replies are empty."""
    if view == "teacher":
        for turn in range(len(example.shards)):
            yield len(renderer.ids(clean_messages(example, turn)))
        return
    context = DirtyContext(renderer, example)
    for text in user_turns(example, view):
        yield len(context.ask(text))
        context.answer(())


def room_left(renderer: Renderer, prompt: Sequence[int], wanted: int, where: str) -> int:
    """How many tokens a reply may have, of the `wanted` ones; the first that gets fewer is told."""
    limit = renderer.context_length or len(prompt) + wanted
    room = max(0, min(wanted, limit - len(prompt)))
    if room < wanted and limit not in _told_limits:
        _told_limits.add(limit)
        cut = f"its reply may have {room} of {wanted:,} tokens" if room else "its reply stays empty"
        full = f"the model's context of {limit:,} tokens is full: {where} begins with {len(prompt):,}"
        log.warning("%s, %s; later ones like it are not told", full, cut)
    return room


_told_limits: set[int] = set()

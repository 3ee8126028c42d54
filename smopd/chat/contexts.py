"""Dirty contexts as token ids: what the student saw, its replies in the history."""

from collections.abc import Sequence
from typing import Literal

from smopd.chat.messages import Message, system_messages, user
from smopd.chat.template import Renderer
from smopd.data import Example

History = Literal["template", "verbatim"]


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
        if self.history == "verbatim" and self.ids:
            reply_free = self.messages[:-1]  # the reply itself stays as sampled ids
            # Without a final end token: the continuation brings the template's own.
            closed = self.ids[:-1] if self.ids[-1] in self.renderer.end_ids else self.ids
            self.ids = closed + self.renderer.continuation(reply_free, text)
            self.messages.append(user(text))
        else:
            self.messages.append(user(text))
            self.ids = self.renderer.ids(self.messages)
        return list(self.ids)

    def answer(self, reply: Sequence[int]) -> None:
        self.messages.append({"role": "assistant", "content": self.renderer.decode(reply)})
        if self.history == "verbatim":
            self.ids = [*self.ids, *reply]

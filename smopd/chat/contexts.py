"""Dirty contexts (what the student saw, its replies in the history) and clean ones (what the teacher sees:
the user turns alone for a middle turn, the FULL view for the answer turn), as token ids.
"""

from collections.abc import Sequence
from typing import Literal

from smopd.chat.messages import Message, clean_messages, full_messages, system_messages, user, users_messages
from smopd.chat.template import Renderer
from smopd.data import Example

History = Literal["template", "verbatim"]


def full_context(renderer: Renderer, example: Example) -> list[int]:
    """The whole task in one message: the FULL view, and the clean context of the answer turn."""
    return renderer.ids(full_messages(example))


def users_context(renderer: Renderer, example: Example, turn: int) -> list[int]:
    """The user turns up to `turn` (from 0) and no reply: the clean context of a middle turn."""
    return renderer.ids(users_messages(example, turn))


def clean_context(renderer: Renderer, example: Example, turn: int) -> list[int]:
    """What the teacher sees for the reply to shard `turn`."""
    return renderer.ids(clean_messages(example, turn))


class DirtyContext:
    """The growing context of one conversation. `template` renders the history anew each turn, as a server
    would; `verbatim` keeps sampled tokens and appends what the template puts between two replies.
    """

    def __init__(self, renderer: Renderer, example: Example, history: History = "template") -> None:
        self.renderer, self.history = renderer, history
        self.messages: list[Message] = system_messages(example)
        self.ids: list[int] = []

    def ask(self, said: str) -> list[int]:
        """Add what the user says; the ids to sample the reply from."""
        if self.history == "verbatim" and self.ids:
            reply_free = self.messages[:-1]  # the reply itself stays as sampled ids
            # Without a final end token: the continuation brings the template's own.
            closed = self.ids[:-1] if self.ids[-1] in self.renderer.end_ids else self.ids
            self.ids = closed + self.renderer.continuation(reply_free, said)
            self.messages.append(user(said))
        else:
            self.messages.append(user(said))
            self.ids = self.renderer.ids(self.messages)
        return list(self.ids)

    def answer(self, reply: Sequence[int]) -> None:
        """Put the sampled reply into the history."""
        self.messages.append({"role": "assistant", "content": self.renderer.decode(reply)})
        if self.history == "verbatim":
            self.ids = [*self.ids, *reply]

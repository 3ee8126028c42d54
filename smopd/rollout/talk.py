"""A conversation with several models at once: each is told the same and keeps its own replies."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from smopd.data import Example
from smopd.rollout.assembly import Player
from smopd.rollout.driver import Conversation, Seed, Turn
from smopd.seeds import derive

Waiting = Callable[[str], AbstractContextManager[object]]  # what a user sees while this model writes
Replies = dict[str, Turn]


class Talk:
    """What was said so far, by model. A reply that is not finished, or fails, leaves no trace.

    `example`: the task that is told, or an empty one. Replies to a task are those of its evaluation.
    """

    def __init__(self, players: Mapping[str, Player], example: Example, seed: Seed, waiting: Waiting) -> None:
        if not example.shards:  # any reply may be the last: each may be as long as an answer
            players = {n: replace(p, middle_tokens=p.sampling.max_tokens) for n, p in players.items()}
        self.players, self.example, self.seed, self.waiting = players, example, seed, waiting
        self.told: list[str] = []
        self.sides: dict[str, Conversation] = {}
        self.reset()

    def say(self, text: str, last: bool = False) -> Replies:
        """Tell everybody the same; the replies. `last`: a task ends here."""
        count = len(self.told)
        seed = derive(*self.seed, "sharded", self.example.id, count)
        try:
            for name, player in self.players.items():
                with self.waiting(name):
                    player.reply([self.sides[name]], [text], [seed], [last])
        except BaseException:
            self._keep(count)
            raise
        self.told.append(text)
        return {name: side.turns[-1] for name, side in self.sides.items()}

    def clean(self) -> tuple[str, Replies]:
        """All that was told, in one message to models that know nothing else: the message and the replies."""
        complete = self.told and tuple(self.told) == self.example.shards  # the task and nothing else
        text = self.example.full if complete else " ".join(self.told)
        seed = derive(*self.seed, "full", self.example.id, 0)
        replies: Replies = {}
        for name, player in self.players.items():
            alone = player.open(self.example, "full", self.seed)
            with self.waiting(name):
                player.reply([alone], [text], [seed], [True])
            replies[name] = alone.turns[-1]
        return text, replies

    def undo(self) -> str | None:
        """Take the last message and its replies back; the message, None where there is none."""
        if not self.told:
            return None
        *earlier, last = self.told
        self._keep(len(earlier))
        return last

    def reset(self) -> None:
        self._keep(0)

    def _keep(self, count: int) -> None:
        """Only the first `count` turns, in new conversations: a half-done turn leaves words in a context."""
        self.told = self.told[:count]
        for name, player in self.players.items():
            fresh = player.open(self.example, "sharded", self.seed)
            old = self.sides.get(name, fresh)
            for user, turn in zip(old.asked[:count], old.turns[:count], strict=True):
                if fresh.context:
                    fresh.context.ask(user)
                    fresh.context.answer(turn.reply)
                fresh.asked.append(user)
                fresh.turns.append(turn)
            self.sides[name] = fresh

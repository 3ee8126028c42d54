"""What a step plays, and what comes of it: plays, replies and rollouts as data.

Rollouts of the same example have different sample numbers, which are part of every derived seed. A group is
the rollouts of one drawn example: one that a step draws twice makes two groups (`group_of`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from smopd.chat.messages import VIEWS, View
from smopd.data.example import Example
from smopd.plugins import calling, check_function, check_word, is_number, require, unexpected
from smopd.seeds import rng
from smopd.verify.verdict import Verdict

if TYPE_CHECKING:
    from smopd.rollout.driver import Conversation

Draw = tuple[int | str, ...]  # what derived seeds begin with: the run's seed and the step


@dataclass(frozen=True)
class Play:
    """A view in which examples are played. The first play of a plan is everybody's, `samples` times. Further
    ones are drawn with probability `share` for every rollout; `instead`: in the place of the first.
    """

    view: View = "sharded"
    samples: int = 1
    share: float = 1.0
    instead: bool = False
    verify: bool = True  # whether its last reply is judged
    turns: Callable[[int], int] | None = None  # how many turns are played at a step; None: all of them
    reference: bool = False  # the reply is the reference of the example's task: nothing is sampled

    def __post_init__(self) -> None:
        known = tuple(view for view in VIEWS if view != "simulated")  # there the user's words are not known
        check_word("a play's view", self.view, known)
        for name in ("instead", "verify", "reference"):
            require(isinstance(flag := getattr(self, name), bool), f"a play's {name}", flag, "True or False")
        whole = type(self.samples) is int and self.samples >= 1
        require(whole, "a play's samples", self.samples, "a whole number of at least 1")
        share = is_number(self.share) and 0 <= self.share <= 1
        require(share, "a play's share", self.share, "a number from 0 to 1")
        if self.turns is not None:
            check_function("a play's turns", self.turns, "step")
        if self.reference and self.view != "full":
            raise ValueError("there are references for the whole task only: Play('full', reference=True)")

    def turns_at(self, step: int) -> int | None:
        if self.turns is None:
            return None
        with calling(self.turns, lambda: f"play '{self.view}', turns"):
            most = self.turns(step)
            if type(most) is not int or most < 1:
                raise unexpected(most, "a whole number of at least 1")
        return most

    def __str__(self) -> str:
        often = f" for {self.share:.0%}{' instead' if self.instead else ''}" if self.share < 1 else ""
        short = ", cut short by step" if self.turns else ""
        short += ", reference replies" if self.reference else ""
        return self.view + (f", {self.samples} samples" if self.samples > 1 else "") + short + often


@dataclass(frozen=True)
class Reply:
    """One reply of a played conversation, with the context it was sampled from."""

    example: Example
    view: View
    sample: int
    turn: int  # from 0
    last: bool  # the reply to the last user turn
    context: tuple[int, ...]
    tokens: tuple[int, ...]
    engine_logps: tuple[float, ...] = field(default=(), compare=False)  # may be empty
    text: str = field(default="", compare=False)
    verdict: Verdict | None = None  # of the conversation's last reply
    advantage: float = 0.0
    repeat: int = 0  # of its rollout

    @property
    def draw(self) -> Draw:
        """What seeds of this reply's own derive from, after those of the step."""
        return numbered((self.example.id, self.turn), self.sample)


@dataclass(frozen=True)
class Rollout:
    """What one example gave in one step: a conversation for each play, and a verdict for each of them."""

    example: Example
    conversations: tuple["Conversation", ...]
    verdicts: tuple[Verdict | None, ...]
    sample: int = 0
    advantage: float = 0.0
    repeat: int = 0  # how often the step had drawn the example before

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the answer: of the first conversation that was judged."""
        return next((verdict for verdict in self.verdicts if verdict), None)

    @property
    def correct(self) -> bool:
        return self.verdict is not None and self.verdict.correct

    def replies(self) -> list[Reply]:
        """Every reply, empty ones too."""
        return [
            Reply(self.example, played.view, self.sample, number, number == played.whole - 1,
                  turn.context, turn.reply, turn.logps, turn.text, verdict, self.advantage, self.repeat)
            for played, verdict in zip(self.conversations, self.verdicts, strict=True)
            for number, turn in enumerate(played.turns)
        ]  # fmt: skip


@dataclass(frozen=True)
class Peers:
    """All rollouts of a step, for teacher contexts that look at others than their own."""

    rollouts: Sequence[Rollout] = ()
    draw: Draw = ()
    done: float = 0.0  # the share of the run's steps that are over with this one

    def siblings(self, reply: Reply) -> list[Rollout]:
        return [r for r in self.rollouts if group_of(r) == group_of(reply) and r.sample != reply.sample]

    def others(self, reply: Reply, count: int = 1) -> list[Example]:
        """Other examples of the step, drawn for this reply; fewer where there are not so many."""
        examples = {r.example.id: r.example for r in self.rollouts if r.example.id != reply.example.id}
        drawn = rng(*self.draw, "peers", *reply.draw)
        return drawn.sample(list(examples.values()), min(count, len(examples)))


Group = tuple[str, int]


def group_of(played: Reply | Rollout) -> Group:
    return played.example.id, played.repeat


def numbered(parts: Draw, sample: int) -> Draw:
    """The parts of a seed with the sample number; the first sample's are those of an example played once."""
    return (*parts, "sample", sample) if sample else parts


def samples_of(examples: Sequence[Example], samples: int) -> list[tuple[Example, int]]:
    """Each example `samples` times with sample numbers; one that comes again goes on counting."""
    numbers: dict[str, count[int]] = defaultdict(count)
    return [(example, next(numbers[example.id])) for example in examples for _ in range(samples)]


def drawn_plays(plays: Sequence[Play], draw: Draw, example: Example, sample: int) -> list[Play]:
    first, *branches = plays
    seed, *step = draw
    rollout = (*step, *numbered((example.id,), sample))
    chosen = [p for p in branches if rng(seed, f"{p.view} branch", *rollout).random() < p.share]
    return chosen if any(play.instead for play in chosen) else [first, *chosen]


def graded(rollouts: Sequence[Rollout], advantages: Sequence[float]) -> list[Rollout]:
    return [replace(r, advantage=a) for r, a in zip(rollouts, advantages, strict=True)]

"""A method as data: what is played, and the terms of the loss, each made of small parts with one meaning.
Training, metrics, token log, planner and benchmarks iterate over a plan and know no method. The parts:

    replies   which replies of a rollout a term is about                 (replies.py)
    teacher   the messages the teacher sees for a reply                  (contexts.py)
    loss      what a token costs                                         (smopd/scoring/losses.py)
    tokens    what a token counts; 0: it carries no loss                 (tokens.py)
    cap       how much of a token's cost counts                          (caps.py)
    turns     what a reply counts among the term's replies of a rollout  (turns.py)
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args

from smopd.chat.messages import Clean, Message
from smopd.objective.caps import Cap, no_cap
from smopd.objective.grades import Grade
from smopd.objective.tokens import Moment, TokenWeight, Weight, as_weight, every_token
from smopd.objective.turns import TurnWeight, uniform
from smopd.plugins import calling, check_function, check_word, is_number, making_at, require
from smopd.rollout.play import Peers, Play, Reply
from smopd.scoring.losses import RowLoss, needs_teacher

Replies = Callable[[Sequence[Reply], Moment], Sequence[Reply]]  # all of a rollout's -> the term's
Context = list[Message] | tuple[int, ...]  # messages for the chat template, or token ids as they are
Contexts = Sequence[tuple[float, Context]]  # teacher hidden states are the sum of weight * hidden
TeacherContext = Callable[[Reply, Peers], Contexts]
Weights = Literal["ema", "base", "student"]  # averaged, without an adapter, the student's as they are
MeanOver = Literal["kept", "all", "weight", "sum"]
Per = Literal["reply", "group", "batch"]


@dataclass(frozen=True)
class Auxiliary:
    """Further contexts in which the sampled tokens are looked up: a column of log-probabilities each, which
    token weights (`tokens.auxiliary`) and row losses (`rows.auxiliary`) read. Without one the term leaves the
    reply out.
    """

    contexts: Callable[[Reply, Peers], Sequence[Context]]
    weights: Weights = "ema"

    def __post_init__(self) -> None:
        check_function("the contexts of an Auxiliary", self.contexts, "reply", "peers")
        check_word("the weights of an Auxiliary", self.weights, get_args(Weights))


@dataclass(frozen=True)
class Term:
    """One part of the loss: scale * mean over the rollout's replies of turn weight * mean over tokens.

    `mean_over` is what a reply's sum over tokens is divided by: its tokens that carry loss, all its tokens,
    the sum of their weights, or (sum) nothing. `per` "batch": one sum over all replies of the step, divided
    once. `per` "group": the same over a drawn example's rollouts, and the mean of that over the step's
    groups; a group without a token that counts is 0.
    """

    name: str
    replies: Replies
    teacher: TeacherContext | None  # None: the loss looks at the student alone, and no teacher's pass is made
    loss: RowLoss
    tokens: TokenWeight = every_token
    cap: Cap = no_cap
    turns: TurnWeight = uniform
    mean_over: MeanOver = "kept"
    per: Per = "reply"
    scale: float = 1.0
    weights: Weights = "ema"  # of the teacher
    auxiliary: Auxiliary | None = None
    made_at: str = field(default_factory=making_at, init=False, repr=False, compare=False)  # file and line

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and self.name != "", "the name of a term", self.name, "a text")
        here = f"term '{self.name}': "
        check_function(f"{here}replies", self.replies, "replies", "moment")
        if self.teacher is not None:
            check_function(f"{here}teacher", self.teacher, "reply", "peers")
        if not isinstance(self.tokens, Weight):
            check_function(f"{here}tokens", self.tokens, "tokens")
        check_function(f"{here}turns", self.turns, "turns")
        caps = all(callable(getattr(self.cap, name, None)) for name in ("apply", "over", "has_gradient"))
        require(caps, f"{here}cap", self.cap, "a cap such as hard(0.5)")
        for part, words in (("mean_over", MeanOver), ("per", Per), ("weights", Weights)):
            check_word(f"{here}{part}", getattr(self, part), get_args(words))
        require(is_number(self.scale), f"{here}scale", self.scale, "a finite number")
        known = isinstance(self.auxiliary, Auxiliary | None)
        require(known, f"{here}auxiliary", self.auxiliary, "an Auxiliary")
        costs = hasattr(self.loss, "name") and callable(getattr(self.loss, "value", None))
        expected = "a row loss such as reverse_kl(), or a function marked with @row_loss"
        require(costs and not isinstance(self.loss, type), f"{here}loss", self.loss, expected)
        hashed = type(self.loss).__hash__ is not None
        require(hashed, f"{here}loss", self.loss, "something that can be hashed: a frozen dataclass")
        if self.teacher is None and needs_teacher(self.loss):
            raise ValueError(f"{here}loss {self.loss.name!r} compares with a teacher, and teacher is None")

    def calling(self, part: str) -> AbstractContextManager[None]:
        """Names the term and a part of it in what goes wrong inside."""
        whole = function = getattr(self, part)
        if part == "tokens":
            function = as_weight(whole).function
        elif part == "auxiliary":
            whole = function = whole.contexts
        elif part == "loss":
            whole, function = whole.name, whole.value
        return calling(function, lambda: f"term '{self.name}', {part} `{part_name(whole)}`", self.made_at)

    @property
    def selects(self) -> bool:
        return as_weight(self.tokens).selects

    @property
    def needs_whole_step(self) -> bool:
        """Whether a token's weight depends on other replies of the step, so that all are scored first."""
        counts_weights = self.per != "reply" and self.mean_over in ("kept", "weight")
        return counts_weights or as_weight(self.tokens).scope == "batch"

    def logged(self, moment: Moment) -> dict[str, float]:
        """What its token weights want to see in the metrics, such as the share kept."""
        with self.calling("tokens"):
            return {name: float(value) for name, value in as_weight(self.tokens).logged(moment).items()}


@dataclass(frozen=True)
class Plan:
    """What one step plays, and the loss of what came of it: for a rollout the sum of its terms."""

    plays: tuple[Play, ...]
    terms: tuple[Term, ...]
    grade: Grade | None = None  # verdicts of a group become advantages, before the batch is cut
    balance: bool = False  # scale terms' gradients to the mean of their norms, by a backward pass for each

    def __post_init__(self) -> None:
        for what, kind in (("plays", Play), ("terms", Term)):
            parts, one = getattr(self, what), kind.__name__
            require(isinstance(parts, (tuple, list)), f"a plan's {what}", parts, f"a tuple: ({one}(...),)")
            for part in parts:
                require(isinstance(part, kind), f"one of a plan's {what}", part, f"a {one}")
            object.__setattr__(self, what, tuple(parts))
        if self.grade is not None:
            check_function("the grade of a plan", self.grade, "rollouts")
        for what, names in (("plays", [p.view for p in self.plays]), ("terms", [t.name for t in self.terms])):
            if not names or len(set(names)) < len(names):
                raise ValueError(f"a plan needs {what}, each with a name of its own; found {names}")
        require(isinstance(self.balance, bool), "the balance of a plan", self.balance, "True or False")
        first, *others = self.plays
        if first.share != 1 or first.instead:
            raise ValueError("the first play of a plan is everybody's: share 1, in nobody's place")
        if any(play.samples > 1 for play in others):
            raise ValueError("the first play of a plan alone has samples: the others belong to its rollouts")

    @property
    def scored(self) -> tuple[Term, ...]:
        """The terms that count: one of scale 0 is not even computed."""
        return tuple(term for term in self.terms if term.scale)

    @property
    def needs_whole_step(self) -> bool:
        """Whether the whole step is scored once without gradient first."""
        return any(term.needs_whole_step for term in self.scored)

    @property
    def samples(self) -> int:
        return self.plays[0].samples

    @property
    def clean(self) -> Clean:
        """How its teacher is told the user turns: as the first term says that has a form for them."""
        forms = (getattr(term.teacher, "form", None) for term in self.terms)
        return next((form for form in forms if form), "separate")

    def describe(self) -> list[str]:
        """The plan for people: what is played, then a line a term with its parts."""
        graded = f", graded by {part_name(self.grade)}" if self.grade else ""
        lines = [f"plays {part_name(self.plays)}{graded}"]
        lines[0] += ", terms balanced by their gradient norms" if self.balance else ""
        for term in self.terms:
            values = [(f, getattr(term, f.name)) for f in fields(term) if f.init and f.name != "name"]
            unusual = [f"{f.name} {part_name(value)}" for f, value in values if value != f.default]
            lines.append(f"{term.name}: {', '.join(unusual) if term.scale else 'off'}")
        return lines


def part_name(part: Any) -> str:
    """A part as it would be written: a function by its name, a record with its values."""
    if type(part).__str__ is not object.__str__ and is_dataclass(part):
        return str(part)
    if is_dataclass(part):
        shown = [f for f in fields(part) if getattr(part, f.name) != f.default]
        values = ", ".join(part_name(getattr(part, f.name)) for f in shown)
        return f"{type(part).__name__.lower()}({values})"
    if isinstance(part, (tuple, list)):
        return ", ".join(map(part_name, part))
    plain = type(part).__name__ if type(part).__repr__ is object.__repr__ else part
    return f"{part:g}" if isinstance(part, float) else str(getattr(part, "__name__", plain))

"""The pocket world: small sharded tasks that a model of under a million parameters can learn in minutes.

Two families. `math`: a story whose stages must be applied in the order of the day, whatever order the user
tells them in. `actions`: a function call whose arguments arrive over the turns. A task is a goal and 3 to 6
facts, shuffled behind it. Its split is a hash of its content without wording, so no task can be in both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as integers
from itertools import islice
from random import Random
from typing import Literal

from smopd.data.example import Example
from smopd.seeds import derive, rng

EVAL_TENTHS = 2
SIZES = {"train": 4000, "eval": 400}  # how many `pocket:train` and `pocket:eval` mean
NAMING = (
    "the pocket world is named pocket:train or pocket:eval, with an optional size as in pocket:eval:100, or "
    "the first and the last of them as in pocket:eval:401-800"
)

NAMES = ("Tom", "Ana", "Ben", "Mia", "Leo", "Zoe", "Sam", "Eva")
ITEMS = ("apples", "coins", "books", "shells", "cards", "stamps", "pears", "eggs")
WHEN = {"morning": "in the morning", "noon": "at noon", "afternoon": "in the afternoon",
        "evening": "in the evening", "night": "at night"}  # fmt: skip
STAGES = tuple(WHEN)
LARGEST = 40  # every intermediate value stays within 1..LARGEST, one token each

MATH_SYSTEM = "Solve the task and give a number."
GOALS = (
    "How many {items} does {name} have in the end?", "Find the number of {items} that {name} has at last.",
    "What is the final count of {items} for {name}?", "Tell me how many {items} {name} ends with.",
)  # fmt: skip
START = ("{name} starts with {n} {items}.", "At first {name} has {n} {items}.",
         "In the beginning there are {n} {items}.")  # fmt: skip
# A stage's number follows its name at once: a small model binds the two far sooner.
STEP = {
    "+": ("{when} {n} more come.", "{when} {n} {items} are added.", "{when} {n} new {items} arrive."),
    "-": ("{when} {n} get lost.", "{when} {n} {items} are taken.", "{when} {n} are given away."),
    "x": ("{when} {n} times as many are there.", "{when} {n} times the {items}.",
          "{when} {n} times the count."),
}  # fmt: skip
LEADS = ("", "", "Also, ", "And ", "Oh, ", "Wait, ")

VALUES: dict[str, tuple[str | int, ...]] = {
    "day": ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    "time": ("dawn", "breakfast", "lunch", "dinner", "midnight"), "people": tuple(range(2, 10)),
    "city": ("rome", "paris", "oslo", "cairo", "lima", "delhi"), "size": ("small", "medium", "large"),
    "color": ("red", "blue", "green", "black", "white"), "owner": tuple(n.lower() for n in NAMES),
    "pay": ("cash", "card", "check"),
}  # fmt: skip
SAY = {
    "day": ("It is for {v}.", "The day is {v}.", "Let us take {v}."),
    "time": ("It is at {v}.", "The time is {v}.", "Make the time {v}."),
    "people": ("There are {v} of us.", "We are {v} people.", "We count {v} guests."),
    "city": ("It is in {v}.", "The city is {v}.", "Take the one in {v}."),
    "color": ("The color is {v}.", "I like it {v}.", "Make it {v} in color."),
    "size": ("The size is {v}.", "A {v} one.", "Make the size {v}."),
    "owner": ("It is under the name {v}.", "The owner is {v}.", "Put it on {v}."),
    "pay": ("I pay by {v}.", "Payment is by {v}.", "Take {v} for the payment."),
}
FUNCTIONS = {"book_table": "book a table", "send_box": "send a box", "order_shirt": "order a shirt",
             "plan_trip": "plan a trip", "rent_bike": "rent a bike"}  # fmt: skip
ASK = ("Please {what}.", "I want to {what}.", "Can you {what} for me?", "Help me {what}.")
ACTIONS_SYSTEM = "Call the function: {call}"


@dataclass(frozen=True)
class Fact:
    """One thing the user reveals: the start or a stage of a story, or one argument of a call."""

    slot: str  # "start", a stage, or a parameter name
    op: str  # "+", "-", "x" for a stage, "" otherwise
    value: str | int


@dataclass(frozen=True)
class PocketTask:
    """A task without wording: `facts` stand in the order of the solution."""

    family: Literal["math", "actions"]
    facts: tuple[Fact, ...]
    function: str = ""

    @property
    def split(self) -> str:
        """Decided by content alone."""
        facts = [f"{fact.slot}{fact.op}{fact.value}" for fact in sorted(self.facts, key=str)]
        key = derive("pocket split", self.family, self.function, *facts)
        return "eval" if key % 10 < EVAL_TENTHS else "train"


@dataclass(frozen=True)
class Told:
    """A task in words: `order[i]` is the fact that shard i+1 reveals (shard 0 is the goal)."""

    task: PocketTask
    example: Example
    order: tuple[Fact, ...]


def apply(op: str, value: int, n: int) -> int:
    """One stage of a story."""
    return {"+": value + n, "-": value - n, "x": value * n}[op]


def derivation(task: PocketTask, known: frozenset[Fact] | set[Fact], start: int) -> list[tuple[Fact, int]]:
    """The known stages in the order of the day with the running value after each, from `start`."""
    value, steps = start, []
    for fact in (fact for fact in task.facts if fact.op and fact in known):
        value = apply(fact.op, value, int(fact.value))
        steps.append((fact, value))
    return steps


def _math_task(r: Random) -> PocketTask:
    while True:
        stages = sorted(r.sample(STAGES, r.randint(2, 5)), key=STAGES.index)
        facts = [Fact("start", "", r.randint(2, 12))]
        for stage in stages:
            op = r.choice("++--x")
            facts.append(Fact(stage, op, r.randint(2, 3) if op == "x" else r.randint(1, 9)))
        task = PocketTask("math", tuple(facts))
        values = [value for _, value in derivation(task, set(facts), int(facts[0].value))]
        if sum(f.op == "x" for f in facts) <= 2 and all(1 <= value <= LARGEST for value in values):
            return task


def _actions_task(r: Random) -> PocketTask:
    names = r.sample(sorted(VALUES), r.randint(3, 6))
    facts = tuple(Fact(name, "", r.choice(VALUES[name])) for name in names)
    return PocketTask("actions", facts, r.choice(sorted(FUNCTIONS)))


def _led(lead: str, text: str) -> str:
    kept = not lead or text.split()[0] in (*NAMES, "I")
    return lead + (text if kept else text[0].lower() + text[1:])


def tell(task: PocketTask, r: Random, identity: str) -> Told:
    """Put a task into words: FULL in the order of the solution, the shards shuffled behind the goal."""
    name, items = r.choice(NAMES), r.choice(ITEMS)

    def say(fact: Fact) -> str:
        if task.family == "actions":
            return r.choice(SAY[fact.slot]).format(v=fact.value)
        if fact.slot == "start":
            return r.choice(START).format(name=name, items=items, n=fact.value)
        step = r.choice(STEP[fact.op]).format(name=name, items=items, n=fact.value, when=WHEN[fact.slot])
        return step[0].upper() + step[1:]

    told = {fact: say(fact) for fact in task.facts}
    order = list(task.facts)
    r.shuffle(order)
    answer: dict[str, object]
    if task.family == "math":
        system, goal = MATH_SYSTEM, r.choice(GOALS).format(name=name, items=items)
        full = " ".join([*told.values(), goal])
        answer = {"value": str(derivation(task, set(task.facts), int(task.facts[0].value))[-1][1])}
    else:
        system = ACTIONS_SYSTEM.format(call=f"{task.function}({', '.join(f.slot for f in task.facts)})")
        goal = r.choice(ASK).format(what=FUNCTIONS[task.function])
        full = " ".join([goal, *(told[f] for f in r.sample(order, len(order)))])
        answer = {"calls": [{task.function: {f.slot: [f.value] for f in task.facts}}]}
    shards = [goal, *(_led(r.choice(LEADS), told[f]) for f in order)]
    example = Example(identity, task.family, system, tuple(shards), full, answer, "pocket world")
    return Told(task, example, tuple(order))


def tasks(split: str, seed: int) -> Iterator[Told]:
    """An endless stream of told tasks of one split, the two families in turn; the same for the same seed."""
    for index in integers():
        r = rng("pocket world", split, seed, index)
        make = _math_task if index % 2 == 0 else _actions_task
        while (task := make(r)).split != split:
            pass
        yield tell(task, r, f"pocket-{split}-{seed}-{index}")


def generate(split: str, count: int, seed: int = 0) -> list[Example]:
    return [told.example for told in islice(tasks(split, seed), count)]

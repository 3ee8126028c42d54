"""The pocket world: small sharded tasks that a model of under a million parameters can learn in minutes.

There are two families. `math`: a story whose stages must be applied in the order of the day, whatever order
the user tells them in. `actions`: a function call whose arguments arrive over the turns. A task is a goal and
3 to 6 facts in random order. A hash of its content without wording decides its split, so none is in both.
"""

import tomllib
from collections.abc import Iterator
from itertools import count as integers
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from smopd.data.example import Example
from smopd.seeds import derive, rng

SIZES = {"train": 4000, "eval": 400}  # default sizes of `pocket:train` and `pocket:eval`
NAMING = (
    "the pocket world is named pocket:train or pocket:eval, with an optional size as in pocket:eval:100, or "
    "the first and the last of them as in pocket:eval:401-800"
)

LARGEST = 40  # every intermediate value stays within 1..LARGEST, one token each
WORDS = tomllib.loads(Path(__file__).with_name("pocket.toml").read_text(encoding="utf-8"))
NAMES, MATH, ACTIONS = WORDS["names"], WORDS["math"], WORDS["actions"]
STAGES = list(MATH["when"])
VALUES: dict[str, list[str | int]] = ACTIONS["values"]
FUNCTIONS: dict[str, str] = ACTIONS["functions"]


class Fact(NamedTuple):
    """One thing the user reveals: the start or a stage of a story, or one argument of a call."""

    slot: str  # "start", a stage, or a parameter name
    op: str  # "+", "-", "x" for a stage, "" otherwise
    value: str | int


class PocketTask(NamedTuple):
    """A task without wording; `facts` are in the order of the solution."""

    family: Literal["math", "actions"]
    facts: tuple[Fact, ...]
    function: str = ""

    @property
    def split(self) -> str:
        facts = [f"{fact.slot}{fact.op}{fact.value}" for fact in sorted(self.facts, key=str)]
        key = derive("pocket split", self.family, self.function, *facts)
        return "eval" if key % 10 < 2 else "train"


class Told(NamedTuple):
    """A task in words: `order[i]` is the fact that shard i+1 reveals (shard 0 is the goal)."""

    task: PocketTask
    example: Example
    order: tuple[Fact, ...]


def apply(op: str, value: int, n: int) -> int:
    return {"+": value + n, "-": value - n, "x": value * n}[op]


def derivation(task: PocketTask, known: frozenset[Fact] | set[Fact], start: int) -> list[tuple[Fact, int]]:
    """The known stages in the order of the day, with the running value after each, from `start`."""
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


def tell(task: PocketTask, r: Random, identity: str) -> Told:
    """Put a task into words: the shards are the goal, then shuffled facts; FULL tells math in order."""
    blanks = {"name": r.choice(NAMES), "items": r.choice(WORDS["items"])}

    def say(fact: Fact) -> str:
        if task.family == "actions":
            return r.choice(ACTIONS["say"][fact.slot]).format(v=fact.value)
        if fact.slot == "start":
            return r.choice(MATH["start"]).format(n=fact.value, **blanks)
        text = r.choice(MATH["step"][fact.op]).format(n=fact.value, when=MATH["when"][fact.slot], **blanks)
        return text[0].upper() + text[1:]

    def lead_in(text: str) -> str:
        lead = r.choice(WORDS["leads"])
        kept = not lead or text.split()[0] in (*NAMES, "I")
        return lead + (text if kept else text[0].lower() + text[1:])

    texts = {fact: say(fact) for fact in task.facts}
    order = list(task.facts)
    r.shuffle(order)
    answer: dict[str, object]
    if task.family == "math":
        system, goal = MATH["system"], r.choice(MATH["goals"]).format(**blanks)
        full = " ".join([*texts.values(), goal])
        answer = {"value": str(derivation(task, set(task.facts), int(task.facts[0].value))[-1][1])}
    else:
        system = ACTIONS["system"].format(call=f"{task.function}({', '.join(f.slot for f in task.facts)})")
        goal = r.choice(ACTIONS["goals"]).format(what=FUNCTIONS[task.function])
        full = " ".join([goal, *(texts[f] for f in r.sample(order, len(order)))])
        answer = {"calls": [{task.function: {f.slot: [f.value] for f in task.facts}}]}
    shards = (goal, *(lead_in(texts[f]) for f in order))
    example = Example(identity, task.family, system, shards, full, answer, "pocket world")
    return Told(task, example, tuple(order))


def tasks(split: str, seed: int) -> Iterator[Told]:
    """An endless stream of one split's tasks, the two families in turn; deterministic given the seed."""
    for index in integers():
        r = rng("pocket world", split, seed, index)
        make = _math_task if index % 2 == 0 else _actions_task
        while (task := make(r)).split != split:
            pass
        yield tell(task, r, f"pocket-{split}-{seed}-{index}")


def generate(split: str, count: int, seed: int = 0) -> list[Example]:
    return [task.example for task in islice(tasks(split, seed), count)]

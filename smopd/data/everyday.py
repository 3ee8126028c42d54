"""The everyday world: small tasks in plain English that a small chat model can do when it is told them at
once, and loses when they come bit by bit.

Four families: a shopping list, a form that becomes a function call, a bill that is added up, a plan of who
comes when. A task is a goal and 3 to 8 facts, a message each, the first with the goal; later facts may
correct earlier ones ("make that 5 apples", "forget the onions"). After every message there is one right
reply, the state so far, so a middle reply can be judged too (`answer["turns"]`). The two splits share neither
words nor ways to say a thing (everyday.toml).
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count as integers
from itertools import islice
from random import Random
from typing import Any, Literal

from smopd.data.example import Example
from smopd.data.pocket_world import MOST
from smopd.errors import UserError
from smopd.seeds import rng

Split = Literal["train", "eval"]
State = dict[str, Any]  # what the right reply says, as the task's verifier wants it
SIZES: dict[Split, int] = {"train": 2000, "eval": 240}  # how many `everyday:train` and `everyday:eval` mean
# Facts that add something, and those that take something back: the least and the most of each.
LEVELS = {"easy": ((3, 3), (0, 0)), "medium": ((3, 4), (1, 1)), "hard": ((4, 6), (1, 2))}
SHORT = {"short": ((1, 2), (0, 0))}  # for fine-tuning a base on whole tasks: too short to get lost in


@dataclass(frozen=True)
class Story:
    """A task in words: after every fact there is a state."""

    system: str
    goal: str
    facts: tuple[tuple[str, State], ...]


@cache
def words() -> dict[str, Any]:
    """everyday.toml."""
    return tomllib.loads((files("smopd.data") / "everyday.toml").read_text(encoding="utf-8"))


def _shuffled(r: Random, adding: int, correcting: int) -> list[bool]:
    """Which facts correct: never before there are two things to correct one of."""
    later = [False] * max(0, adding - 2) + [True] * correcting
    r.shuffle(later)
    return [False] * min(adding, 2) + later


def _shopping(r: Random, w: dict[str, Any], system: str, adding: int, correcting: int) -> Story:
    new = iter(r.sample(w["things"], adding))
    counts: dict[str, int] = {}
    facts = []
    for corrects in _shuffled(r, adding, correcting):
        thing, n = r.choice(sorted(counts)) if corrects else next(new), r.randint(2, 12)
        if corrects and len(counts) > 1 and r.random() < 0.5:
            del counts[thing]
            text = r.choice(w["remove"])
        else:
            n = r.choice([k for k in range(2, 13) if k != counts.get(thing)])
            counts[thing] = n
            text = r.choice(w["change" if corrects else "add"])
        facts.append((text.format(n=n, thing=thing), {"items": dict(counts)}))
    return Story(system, r.choice(w["goals"]), tuple(facts))


def _booking(r: Random, w: dict[str, Any], system: str, adding: int, correcting: int) -> Story:
    name = r.choice(sorted(w["forms"]))
    form = w["forms"][name]
    slots: list[str] = form["slots"]
    known: dict[str, Any] = {}
    # A form is filled in as a whole, whatever the level asks for; in a short task begun.
    filled = adding if adding < 3 else len(slots)
    new = iter(r.sample(slots, filled))
    facts = []
    for corrects in _shuffled(r, filled, correcting):
        slot = r.choice(sorted(known)) if corrects else next(new)
        value = r.choice([v for v in w["slots"][slot] if v != known.get(slot)])
        known[slot] = value
        text = r.choice(w["change" if corrects else "say"])
        in_order = {s: known[s] for s in slots if s in known}
        told = text.format(slot=slot, Slot=slot.capitalize(), value=value)
        facts.append((told[0].upper() + told[1:], {"call": name, "arguments": in_order}))
    goal = r.choice(w["goals"]).format(what=form["what"], What=form["what"].capitalize())
    signature = f"{name}({', '.join(slots)})"
    system = system.format(signature=signature, example=f"{name}({slots[0]}=..., {slots[1]}=...)")
    return Story(system, goal, tuple(facts))


def _bill(r: Random, w: dict[str, Any], system: str, adding: int, correcting: int) -> Story:
    new, parts = iter(r.sample(w["things"], adding)), list[int]()
    facts = []
    for corrects in _shuffled(r, adding, correcting):
        n = r.randint(1, min(5, sum(parts) - 1)) if corrects else r.randint(2, 9)
        parts.append(-n if corrects else n)
        text = (
            r.choice(w["less"]).format(n=n) if corrects else r.choice(w["add"]).format(n=n, thing=next(new))
        )
        facts.append((text, {"total": sum(parts), "parts": list(parts)}))
    return Story(system, r.choice(w["goals"]), tuple(facts))


def _schedule(r: Random, w: dict[str, Any], system: str, adding: int, correcting: int) -> Story:
    new = iter(r.sample(w["names"], adding))
    plan: dict[str, str] = {}
    facts = []
    for corrects in _shuffled(r, adding, correcting):
        name = r.choice(sorted(plan)) if corrects else next(new)
        time = r.choice([time for time in w["times"] if time not in plan.values()])
        if corrects and len(plan) > 1 and r.random() < 0.5:
            del plan[name]
            text = r.choice(w["remove"])
        else:
            plan[name] = time
            text = r.choice(w["change" if corrects else "add"])
        facts.append((text.format(name=name, time=time), {"plan": dict(plan)}))
    return Story(system, r.choice(w["goals"]), tuple(facts))


FAMILIES: dict[str, Callable[..., Story]] = {
    "shopping": _shopping, "booking": _booking, "bill": _bill, "schedule": _schedule
}  # fmt: skip


def tell(family: str, level: str, split: Split, r: Random, identity: str) -> Example:
    """One example: a fact a shard, the first after the goal; FULL has the goal first or last."""
    (least, most), (fewest, mostly) = (LEVELS | SHORT)[level]
    told = words()[family]
    story = FAMILIES[family](
        r, told[split], told["system"], r.randint(least, most), r.randint(fewest, mostly)
    )
    said = [text for text, _ in story.facts]
    full = [story.goal, *said] if r.random() < 0.5 else [*said, story.goal]
    states = [state for _, state in story.facts]
    answer = {**states[-1], "level": level, "turns": states}
    source = f"everyday world, {split}"
    shards = (f"{story.goal} {said[0]}", *said[1:])
    return Example(identity, family, story.system, shards, " ".join(full), answer, source)


def examples(
    split: Split, families: Sequence[str], levels: Sequence[str], seed: int = 0
) -> Iterator[Example]:
    """An endless stream of different examples, families and levels in turn; the same for the same seed."""
    seen: set[tuple[str, ...]] = set()
    for index in integers():
        family, level = families[index % len(families)], levels[index // len(families) % len(levels)]
        for attempt in integers():
            r = rng("everyday world", split, seed, index, attempt)
            example = tell(family, level, split, r, f"everyday-{split}-{seed}-{index}")
            if example.shards not in seen:
                break
        seen.add(example.shards)
        yield example


def named(name: str) -> list[Example]:
    """`everyday:SPLIT`, with an optional size or range, and families and levels as in
    `everyday@shopping+bill+hard:eval:1-100`.
    """
    found = re.fullmatch(r"everyday(?:@([a-z+]+))?:(train|eval)(?::(?:(\d{1,9})-)?(\d{1,9}))?", name)
    chosen = found[1].split("+") if found and found[1] else []
    unknown = [word for word in chosen if word not in {*FAMILIES, *LEVELS, *SHORT}]
    if found and not unknown:
        split: Split = "train" if found[2] == "train" else "eval"
        first, last = int(found[3] or 1), int(found[4] or SIZES[split])
        if last > MOST:
            raise UserError(f"{name}: at most {MOST:,} examples of a generated world are read at once")
        if 1 <= first <= last:
            families = [f for f in FAMILIES if f in chosen] or list(FAMILIES)
            levels = [level for level in (*SHORT, *LEVELS) if level in chosen] or list(LEVELS)
            return list(islice(examples(split, families, levels), first - 1, last))
    raise UserError(
        f"{name}: the everyday world is named everyday:train or everyday:eval, with an optional size or "
        "range (everyday:eval:100, everyday:eval:101-200) and optional families and levels "
        f"(everyday@shopping+hard:eval); families: {', '.join(FAMILIES)}; levels: "
        f"{', '.join((*SHORT, *LEVELS))}"
    )

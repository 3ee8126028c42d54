"""The everyday world: small tasks in plain English that a small chat model solves when they are told at once,
but not when they come bit by bit.

A task is a goal and 3 to 8 facts, one per message, the first together with the goal; later facts may correct
earlier ones ("make that 5 apples"). Every message has one correct reply, the state so far, so middle replies
can be judged too (`answer["turns"]`). The two splits share neither words nor phrases (everyday.toml).
"""

import tomllib
from collections.abc import Callable, Iterator, Sequence
from itertools import count as integers
from pathlib import Path
from random import Random
from typing import Any

from smopd.data.example import Example
from smopd.seeds import rng

Words = dict[str, Any]  # of one family and split
Facts = Iterator[tuple[str, dict[str, Any]]]  # the text, and the state after it as the verifier expects it
SIZES = {"train": 2000, "eval": 240}  # default sizes of `everyday:train` and `everyday:eval`
# (min, max) number of facts that add something, and of facts that correct something.
LEVELS = {"easy": ((3, 3), (0, 0)), "medium": ((3, 4), (1, 1)), "hard": ((4, 6), (1, 2))}
SHORT = {"short": ((1, 2), (0, 0))}  # for fine-tuning a base on whole tasks: too short to get lost in
WORDS: dict[str, Words] = tomllib.loads(Path(__file__).with_name("everyday.toml").read_text(encoding="utf-8"))


def _shuffle(r: Random, adding: int, correcting: int) -> list[bool]:
    """Which facts are corrections: never one of the first two."""
    later = [False] * max(0, adding - 2) + [True] * correcting
    r.shuffle(later)
    return [False] * min(adding, 2) + later


def _shopping(r: Random, w: Words, adding: int, correcting: int) -> Facts:
    new, counts = iter(r.sample(w["things"], adding)), dict[str, int]()
    for corrects in _shuffle(r, adding, correcting):
        thing, n = r.choice(sorted(counts)) if corrects else next(new), r.randint(2, 12)
        if corrects and len(counts) > 1 and r.random() < 0.5:
            del counts[thing]
            text = r.choice(w["remove"])
        else:
            n = counts[thing] = r.choice([k for k in range(2, 13) if k != counts.get(thing)])
            text = r.choice(w["change" if corrects else "add"])
        yield text.format(n=n, thing=thing), {"items": dict(counts)}


def _booking(r: Random, w: Words, adding: int, correcting: int) -> Facts:
    name = r.choice(sorted(w["forms"]))
    slots, known = w["forms"][name]["slots"], dict[str, Any]()
    # A form is filled in completely at every level, except in a short task.
    filled = adding if adding < 3 else len(slots)
    new = iter(r.sample(slots, filled))
    for corrects in _shuffle(r, filled, correcting):
        slot = r.choice(sorted(known)) if corrects else next(new)
        known[slot] = r.choice([v for v in w["slots"][slot] if v != known.get(slot)])
        text = r.choice(w["change" if corrects else "say"])
        text = text.format(slot=slot, Slot=slot.capitalize(), value=known[slot])
        in_order = {s: known[s] for s in slots if s in known}
        yield text[0].upper() + text[1:], {"call": name, "arguments": in_order}


def _bill(r: Random, w: Words, adding: int, correcting: int) -> Facts:
    new, parts = iter(r.sample(w["things"], adding)), list[int]()
    for corrects in _shuffle(r, adding, correcting):
        n = r.randint(1, min(5, sum(parts) - 1)) if corrects else r.randint(2, 9)
        parts.append(-n if corrects else n)
        text = r.choice(w["less" if corrects else "add"])
        text = text.format(n=n, thing=None if corrects else next(new))
        yield text, {"total": sum(parts), "parts": list(parts)}


def _schedule(r: Random, w: Words, adding: int, correcting: int) -> Facts:
    new, plan = iter(r.sample(w["names"], adding)), dict[str, str]()
    for corrects in _shuffle(r, adding, correcting):
        name = r.choice(sorted(plan)) if corrects else next(new)
        time = r.choice([time for time in w["times"] if time not in plan.values()])
        if corrects and len(plan) > 1 and r.random() < 0.5:
            del plan[name]
            text = r.choice(w["remove"])
        else:
            plan[name] = time
            text = r.choice(w["change" if corrects else "add"])
        yield text.format(name=name, time=time), {"plan": dict(plan)}


FAMILIES: dict[str, Callable[[Random, Words, int, int], Facts]] = {
    "shopping": _shopping, "booking": _booking, "bill": _bill, "schedule": _schedule
}  # fmt: skip
CHOICES = (*FAMILIES, *SHORT, *LEVELS)
NAMING = (
    "the everyday world is named everyday:train or everyday:eval, with an optional size or range "
    "(everyday:eval:100, everyday:eval:101-200) and optional families and levels "
    f"(everyday@shopping+hard:eval); families: {', '.join(FAMILIES)}; levels: {', '.join((*SHORT, *LEVELS))}"
)


def _tell(family: str, level: str, split: str, r: Random, identity: str) -> Example:
    """Make an example: one fact per shard, the first after the goal; FULL has the goal first or last."""
    adding, correcting = (r.randint(*bounds) for bounds in (LEVELS | SHORT)[level])
    w, system = WORDS[family][split], WORDS[family]["system"]
    texts, states = zip(*FAMILIES[family](r, w, adding, correcting), strict=True)
    goal = r.choice(w["goals"])
    if family == "booking":  # goal and system prompt name the form
        call = states[-1]["call"]
        what, slots = w["forms"][call]["what"], w["forms"][call]["slots"]
        signature, shown = f"{call}({', '.join(slots)})", f"{call}({slots[0]}=..., {slots[1]}=...)"
        goal = goal.format(what=what, What=what.capitalize())
        system = system.format(signature=signature, example=shown)
    full = [goal, *texts] if r.random() < 0.5 else [*texts, goal]
    answer = {**states[-1], "level": level, "turns": list(states)}
    shards = (f"{goal} {texts[0]}", *texts[1:])
    return Example(identity, family, system, shards, " ".join(full), answer, f"everyday world, {split}")


def examples(split: str, chosen: Sequence[str] = ()) -> Iterator[Example]:
    """An endless, deterministic stream of distinct examples, with the chosen families and levels in turn."""
    families = [family for family in FAMILIES if family in chosen] or list(FAMILIES)
    levels = [level for level in (*SHORT, *LEVELS) if level in chosen] or list(LEVELS)
    seen: set[tuple[str, ...]] = set()
    for index in integers():
        family, level = families[index % len(families)], levels[index // len(families) % len(levels)]
        generators = (rng("everyday world", split, 0, index, attempt) for attempt in integers())
        tries = (_tell(family, level, split, r, f"everyday-{split}-0-{index}") for r in generators)
        example = next(example for example in tries if example.shards not in seen)
        seen.add(example.shards)
        yield example

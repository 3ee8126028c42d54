"""What the pocket model is trained on: replies to complete tasks, to clean multi-turn prefixes, and dialogues
of mixed quality.

In a dialogue most replies build on the guess made before (anchored), the rest derive the answer again from
the user's facts. Which of the two is a coin whose bias depends on how the user leads in, so a trained model
is uncertain where the two part, and never confidently wrong. Clean replies slip now and then and mostly take
the slip back: a teacher that is forced onto a wrong beginning has seen one before.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from smopd.data.pocket_world import VALUES, Fact, PocketTask, Told, apply, derivation

# How likely a reply builds on the last guess, by the first word of the user's turn: 60 to 80% over all turns.
ANCHORED = {"Also,": 0.80, "And": 0.80, "Oh,": 0.40, "Wait,": 0.40}
ANCHORED_PLAIN = 0.70
SLIP = 0.15  # clean replies that begin with a guess out of nowhere
TAKEN_BACK = 0.75  # slips that are corrected at once
RECOVERY = 0.12  # anchored beginnings in a dialogue that are taken back

DERIVE_MATH = ("start {n}", "begin with {n}", "first {n}")
ASSUME_MATH = ("start unknown, say {n}", "begin with maybe {n}", "first guess {n}")
ANCHOR_MATH = ("so {n}", "now {n}", "then {n}")
OP_WORDS = {"+": "more", "-": "less", "x": "times"}
CLOSE_MATH = ("The answer is {n}.", "That makes {n}.", "Result: {n}.")
DERIVE_ACTIONS = ("From your words:", "Given the facts:", "You asked for:")
ANCHOR_ACTIONS = ("As before:", "Still the same:", "Keep it:")
TAKE_BACK = ("? No,", "? Wait,", "? Not so,")


@dataclass(frozen=True)
class Reply:
    """A reply and the guess it commits to: a number, or the arguments of a call."""

    text: str
    guess: Any


def _assumed_start(task: PocketTask, known: set[Fact], r: Random) -> int:
    """Five as often as not; never one that would run the story below zero."""
    fits = [n for n in range(2, 13) if all(value >= 0 for _, value in derivation(task, known, n))] or [12]
    return 5 if 5 in fits and r.random() < 0.5 else r.choice(fits)


def _close(r: Random, value: int) -> str:
    return " " + r.choice(CLOSE_MATH).format(n=value)


def _derive_math(task: PocketTask, known: set[Fact], r: Random) -> Reply:
    start = next((f for f in known if f.slot == "start"), None)
    value = int(start.value) if start else _assumed_start(task, known, r)
    parts = [r.choice(DERIVE_MATH if start else ASSUME_MATH).format(n=value)]
    for fact, value in derivation(task, known, value):  # noqa: B020 - the last value is the answer
        parts.append(f"{fact.slot} {fact.value} {OP_WORDS[fact.op]}: {value}")
    return Reply("; ".join(parts) + "." + _close(r, value), value)


def _anchor_math(guess: int, fact: Fact, r: Random) -> Reply:
    # A start that comes late is added on top: the guess already stood for one.
    op, n = fact.op or "+", int(fact.value)
    value = max(0, min(99, apply(op, guess, n)))
    begin = r.choice(ANCHOR_MATH).format(n=guess)
    return Reply(f"{begin}, {n} {OP_WORDS[op]}: {value}." + _close(r, value), value)


def _call(task: PocketTask, guess: dict[str, str | int]) -> str:
    def shown(value: str | int) -> str:
        return str(value) if isinstance(value, int) else f'"{value}"'

    return f"[{task.function}({', '.join(f'{slot}={shown(value)}' for slot, value in guess.items())})]"


def _derive_actions(task: PocketTask, known: set[Fact], r: Random) -> Reply:
    def assumed(slot: str) -> str | int:
        return VALUES[slot][0] if r.random() < 0.5 else r.choice(VALUES[slot])

    guess = {f.slot: f.value if f in known else assumed(f.slot) for f in task.facts}
    return Reply(f"{r.choice(DERIVE_ACTIONS)} {_call(task, guess)}", guess)


def _anchor_actions(task: PocketTask, guess: dict[str, str | int], r: Random) -> Reply:
    return Reply(f"{r.choice(ANCHOR_ACTIONS)} {_call(task, guess)}", guess)


def derive(item: Told, known: set[Fact], r: Random) -> Reply:
    """A reply that works from the user's facts alone and assumes what they leave open."""
    return (_derive_math if item.task.family == "math" else _derive_actions)(item.task, known, r)


def _anchor(item: Told, guess: Any, fact: Fact, r: Random) -> Reply:
    if item.task.family == "math":
        return _anchor_math(guess, fact, r)
    return _anchor_actions(item.task, guess, r)


def _taken_back(item: Told, guess: Any, known: set[Fact], r: Random) -> Reply:
    """An anchored beginning, then second thoughts and a derivation."""
    if item.task.family == "math":
        begin = r.choice(ANCHOR_MATH).format(n=guess)
    else:
        begin = r.choice(ANCHOR_ACTIONS).rstrip(":")
    again = derive(item, known, r)
    return Reply(begin + r.choice(TAKE_BACK) + " " + again.text, again.guess)


def clean_reply(item: Told, known: set[Fact], last: Fact | None, r: Random) -> Reply:
    """The reply where the context holds no reply: a derivation, with a slip now and then."""
    if last is None or r.random() >= SLIP:
        return derive(item, known, r)
    nowhere = r.randint(2, 30) if item.task.family == "math" else derive(item, known - {last}, r).guess
    if r.random() < TAKEN_BACK:
        return _taken_back(item, nowhere, known, r)
    return _anchor(item, nowhere, last, r)


def dirty_reply(item: Told, turn: int, guess: Any, r: Random) -> Reply:
    """The reply to shard `turn` (from 1; 0 is the goal) with the earlier guess in the history."""
    fact, known = item.order[turn - 1], set(item.order[:turn])
    lead = item.example.shards[turn].split()[0]
    if r.random() >= ANCHORED.get(lead, ANCHORED_PLAIN):
        return derive(item, known, r)
    if r.random() < RECOVERY:
        return _taken_back(item, guess, known, r)
    return _anchor(item, guess, fact, r)


Message = dict[str, str]


def full_dialogue(item: Told, r: Random) -> list[Message]:
    """The complete task in one message."""
    reply = clean_reply(item, set(item.task.facts), item.order[-1], r)
    task = [_say("system", item.example.system), _say("user", item.example.full)]
    return [*task, _say("assistant", reply.text)]


def prefix_dialogue(item: Told, r: Random) -> list[Message]:
    """The first shards as user turns in a row, no reply between them: the clean context of a middle turn."""
    turn = r.randint(0, len(item.order))
    reply = clean_reply(item, set(item.order[:turn]), item.order[turn - 1] if turn else None, r)
    users = [_say("user", shard) for shard in item.example.shards[: turn + 1]]
    return [_say("system", item.example.system), *users, _say("assistant", reply.text)]


def mixed_dialogue(item: Told, r: Random) -> list[Message]:
    """The whole conversation with a reply to every shard, anchored more often than not."""
    messages = [_say("system", item.example.system)]
    guess: Any = None
    for turn, shard in enumerate(item.example.shards):
        reply = derive(item, set(), r) if turn == 0 else dirty_reply(item, turn, guess, r)
        guess = reply.guess
        messages += [_say("user", shard), _say("assistant", reply.text)]
    return messages


def _say(role: str, content: str) -> Message:
    return {"role": role, "content": content}

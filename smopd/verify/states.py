"""Replies that state where a conversation has got to: lists, plans, totals, a call. What is read of a reply
is compared with the expected state as a whole, in any order; nothing is executed, and the time is linear.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from smopd.verify.task import Answer, Judged, Task
from smopd.verify.verdict import Verdict

Pairs = list[tuple[str, str]]
_COUNTED = re.compile(r"(\d{1,9})\s{0,3}(?:x\s{0,3})?([a-z]{2,40})")
_PLANNED = re.compile(r"([a-z]{2,40})\s{0,3}(?:[:=-]\s{0,3}|at\s)?(\d{1,2}:\d\d)")
_NUMBER = re.compile(r"\d[\d,]{0,12}")
_CALL = re.compile(r"([a-z_]{1,40})\(([^()]{0,400})\)")


def counted(text: str) -> Pairs:
    """(thing, count) of "4 apples, 2 x pears"."""
    return [(thing, count) for count, thing in _COUNTED.findall(text.lower())]


def planned(text: str) -> Pairs:
    """(name, time) of "ana 9:15, ben: 10:00", part by part."""
    parts = [part.strip(" .;-*") for part in re.split(r"[,;\n]", text.lower()[:4000])]
    found = [_PLANNED.fullmatch(part) for part in parts if part]
    return [(match[1], match[2]) if match else ("", "") for match in found]


def called(text: str) -> tuple[str, Pairs] | None:
    """The last call of a text, its arguments without quotes; None where there is none."""
    calls = _CALL.findall(text.lower())
    if not calls:
        return None
    name, inside = calls[-1]
    parts = [part.partition("=") for part in inside.split(",") if part.strip()]
    return name, [(key.strip(" '\""), value.strip(" '\"")) for key, _, value in parts]


def total(text: str) -> int | None:
    """The last whole number of a text."""
    numbers = _NUMBER.findall(text)
    return int(numbers[-1].replace(",", "")) if numbers else None


def compared(found: Pairs, wanted: Mapping[str, Any]) -> Verdict:
    """Every pair that is wanted and no other, each once."""
    expected = Counter((str(key).lower(), str(value).lower()) for key, value in wanted.items())
    said = Counter(found)
    shown = ", ".join(f"{key} {value}" for key, value in found)[:200] or None
    if said == expected:
        return Verdict(True, shown, "ok", "")
    if not found:
        return Verdict(False, None, "no_answer", "nothing of the expected form in the reply")
    lacking = [f"{key} {value}" for key, value in (expected - said)]
    surplus = [f"{key} {value}" for key, value in (said - expected)]
    why = [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"has {', '.join(surplus)[:100]}"] * bool(
        surplus
    )
    return Verdict(False, shown, "ok", "; ".join(why))


def state_task(
    name: str, field: str, judge: Callable[[Answer, str], Verdict], render: Callable[[Answer], str]
) -> Task:
    """A task whose answer is a state in `field`, with the state after every user turn in `turns`."""

    def judged(example: Judged, reply: str) -> Verdict:
        return judge(example.answer, reply)

    def turn_answer(answer: Answer, turn: int) -> Answer | None:
        turns = answer.get("turns")
        return turns[turn] if isinstance(turns, list) and turn < len(turns) else None

    def problem(answer: Answer) -> str | None:
        return None if judge(answer, render(answer)).correct else "the reference does not verify"

    return Task(
        name, (field,), judge=judged, turn_answer=turn_answer, reference_problem=problem,
        reference_replies=lambda answer: [render(answer)], shards_repeat=False,
    )  # fmt: skip

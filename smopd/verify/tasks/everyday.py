"""Everyday tasks whose replies state the result so far: a shopping list, a booking (a function call), a bill,
a schedule. This state must equal the expected one as a whole, in any order; nothing is executed.

    user       I am making a shopping list. I need 4 apples.
    assistant  4 apples
    user       And 2 pears.
    assistant  4 apples, 2 pears
    user       Make that 5 apples.
    assistant  5 apples, 2 pears                 <- every turn has a right reply: the state so far
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from smopd.verify.task import Answer, Task
from smopd.verify.verdict import Verdict

_COUNTED = re.compile(r"(\d{1,9})\s{0,3}(?:x\s{0,3})?([a-z]{2,40})")  # 4 apples, 2 x pears
_PLANNED = re.compile(r"([a-z]{2,40})\s{0,3}(?:[:=-]\s{0,3}|at\s)?(\d{1,2}:\d\d)")  # ana 9:15, ben: 10:00
_NUMBER = re.compile(r"\d[\d,]{0,12}")
_CALL = re.compile(r"([a-z_]{1,40})\(([^()]{0,400})\)")


def _join(pairs: Iterable[tuple[str, Any]], form: str = "{0} {1}") -> str:
    return ", ".join(form.format(key, value) for key, value in pairs)


def _compare(pairs: list[tuple[str, str]], wanted: Mapping[str, Any]) -> Verdict:
    expected = Counter((str(key).lower(), str(value).lower()) for key, value in wanted.items())
    stated = Counter(pairs)
    shown = _join(pairs)[:200] or None
    if stated == expected:
        return Verdict(True, shown, "ok", "")
    if not pairs:
        return Verdict(False, None, "no_answer", "nothing of the expected form in the reply")
    lacking, surplus = _join(expected - stated), _join(stated - expected)
    why = [f"lacks {lacking}"] * bool(lacking) + [f"has {surplus[:100]}"] * bool(surplus)
    return Verdict(False, shown, "ok", "; ".join(why))


def _judge_booking(answer: Answer, reply: str) -> Verdict:
    """Compare name and arguments of the last call, without case and quotes."""
    calls = _CALL.findall(reply.lower())
    if not calls:
        return Verdict(False, None, "no_answer", "no call in the reply")
    name, inside = calls[-1]
    known = answer["arguments"]
    if name != answer["call"].lower():
        return Verdict(False, name, "ok", f"expected a call of {answer['call']}")
    parts = [part.partition("=") for part in inside.split(",") if part.strip()]
    if not parts:
        return Verdict(not known, f"{name}()", "ok", f"lacks {', '.join(known)}" if known else "")
    return _compare([(key.strip(" '\""), value.strip(" '\"")) for key, _, value in parts], known)


def _judge_bill(answer: Answer, reply: str) -> Verdict:
    """Compare the last number; if nothing was spent yet, a reply without a number is right."""
    numbers, wanted = _NUMBER.findall(reply), int(answer["total"])
    if not numbers:
        nothing = wanted == 0 and bool(reply.strip())
        return Verdict(nothing, None, "ok" if nothing else "no_answer", "" if nothing else "no number")
    total = int(numbers[-1].replace(",", ""))
    return Verdict(total == wanted, str(total), "ok", "" if total == wanted else f"expected {wanted}")


def _judge_schedule(answer: Answer, reply: str) -> Verdict:
    """Compare name by name; for an empty plan, a single remark without digits is right."""
    parts = [part.strip(" .;-*") for part in re.split(r"[,;\n]", reply.lower()[:4000])]
    matches = [_PLANNED.fullmatch(part) for part in parts if part]
    if not answer["plan"] and len(matches) <= 1 and not any(char.isdigit() for char in reply):
        return Verdict(True, None, "ok", "")
    return _compare([(match[1], match[2]) if match else ("", "") for match in matches], answer["plan"])


def _bill(answer: Answer) -> str:
    """Write the sum with its parts, if they are known: 12 + 9 - 3 = 18."""
    parts = answer.get("parts") or [answer["total"]]
    shown = str(parts[0]) + "".join(f" {'-' if part < 0 else '+'} {abs(part)}" for part in parts[1:])
    return f"{shown} = {answer['total']}"


def _turn_answer(answer: Answer, turn: int) -> Answer | None:
    turns = answer.get("turns")
    return turns[turn] if isinstance(turns, list) and turn < len(turns) else None


def _task(
    name: str, field: str, judge: Callable[[Answer, str], Verdict], render: Callable[[Answer], str]
) -> Task:
    """Make a task whose answer holds a state in `field`, and those after each user turn in `turns`."""

    def problem(answer: Answer) -> str | None:
        return None if judge(answer, render(answer)).correct else "the reference does not verify"

    return Task(
        name, (field,), judge=lambda example, reply: judge(example.answer, reply), turn_answer=_turn_answer,
        reference_problem=problem, reference_replies=lambda answer: [render(answer)], shards_repeat=False,
    )  # fmt: skip


TASKS = (
    _task("shopping", "items",
          lambda a, reply: _compare([pair[::-1] for pair in _COUNTED.findall(reply.lower())], a["items"]),
          lambda a: _join(a["items"].items(), "{1} {0}") or "nothing yet"),
    _task("booking", "arguments", _judge_booking,
          lambda a: f"{a['call']}({_join(a['arguments'].items(), '{0}={1}')})"),
    _task("bill", "total", _judge_bill, _bill),
    _task("schedule", "plan", _judge_schedule, lambda a: _join(a["plan"].items()) or "nobody yet"),
)  # fmt: skip

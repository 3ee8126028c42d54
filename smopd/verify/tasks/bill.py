"""A bill that is added up: the last number of the reply must be the total."""

from smopd.verify.states import state_task, total
from smopd.verify.task import Answer
from smopd.verify.verdict import Verdict


def verify_bill(answer: Answer, reply: str) -> Verdict:
    """Compare the total; where nothing was spent yet a reply without a number will do."""
    found, wanted = total(reply), int(answer["total"])
    if found is None:
        nothing = wanted == 0 and bool(reply.strip())
        return Verdict(nothing, None, "ok" if nothing else "no_answer", "" if nothing else "no number")
    return Verdict(found == wanted, str(found), "ok", "" if found == wanted else f"expected {wanted}")


def render(answer: Answer) -> str:
    """The sum with its parts, where they are known: 12 + 9 - 3 = 18."""
    parts = answer.get("parts") or [answer["total"]]
    shown = str(parts[0]) + "".join(f" {'-' if part < 0 else '+'} {abs(part)}" for part in parts[1:])
    return f"{shown} = {answer['total']}"


TASK = state_task("bill", "total", verify_bill, render)

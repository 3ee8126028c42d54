"""A plan of who comes when: the reply must hold every name with its time, in any order, and nothing else."""

from smopd.verify.states import compared, planned, state_task
from smopd.verify.task import Answer
from smopd.verify.verdict import Verdict

EMPTY = "nobody yet"


def verify_schedule(answer: Answer, reply: str) -> Verdict:
    """Compare name by name; of an empty plan any one short remark may be made."""
    found = planned(reply)
    if not answer["plan"] and len(found) <= 1 and not any(char.isdigit() for char in reply):
        return Verdict(True, None, "ok", "")
    return compared(found, answer["plan"])


TASK = state_task(
    "schedule", "plan", verify_schedule,
    lambda answer: ", ".join(f"{name} {time}" for name, time in answer["plan"].items()) or EMPTY,
)  # fmt: skip

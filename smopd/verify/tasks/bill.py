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


TASK = state_task("bill", "total", verify_bill, lambda answer: f"total: {answer['total']}")

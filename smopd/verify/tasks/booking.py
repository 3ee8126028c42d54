"""A form that becomes a function call: the last call of the reply must have every argument that is known, and
no other.
"""

from smopd.verify.states import called, compared, state_task
from smopd.verify.task import Answer
from smopd.verify.verdict import Verdict


def verify_booking(answer: Answer, reply: str) -> Verdict:
    """Compare name and arguments, without case and quotes."""
    found = called(reply)
    if found is None:
        return Verdict(False, None, "no_answer", "no call in the reply")
    name, arguments = found
    if name != answer["call"]:
        return Verdict(False, name, "ok", f"expected a call of {answer['call']}")
    return compared(arguments, answer["arguments"]) if arguments else _empty(answer)


def _empty(answer: Answer) -> Verdict:
    known = answer["arguments"]
    return Verdict(not known, f"{answer['call']}()", "ok", "" if not known else f"lacks {', '.join(known)}")


def render(answer: Answer) -> str:
    """The call as the system prompt asks for it."""
    return f"{answer['call']}({', '.join(f'{k}={v}' for k, v in answer['arguments'].items())})"


TASK = state_task("booking", "arguments", verify_booking, render)

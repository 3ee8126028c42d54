"""The verdict that all verifiers return, in a module that worker processes can import alone."""

from dataclasses import dataclass
from typing import Literal, get_args

Status = Literal["ok", "no_answer", "timeout", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
FAILED: tuple[Status, ...] = ("timeout", "error")  # the reply was not judged


@dataclass(frozen=True)
class Verdict:
    """The verdict on one reply; `status` is "ok" whenever an answer was found and compared."""

    correct: bool
    extracted: str | None
    status: Status
    detail: str


def describe_verdict(correct: bool, extracted: str | None, status: str) -> tuple[str, str]:
    """Return "correct" or "wrong", and what was answered (empty if the verifier does not say)."""
    unanswered = {"no_answer": "no answer found", "ok": ""}.get(status, f"not judged ({status})")
    answer = unanswered if extracted is None else f"answered {extracted}"
    return ("correct" if correct else "wrong"), answer

"""What every verifier answers with; apart from how, so that a worker process can import it alone."""

from dataclasses import dataclass
from typing import Literal, get_args

Status = Literal["ok", "no_answer", "timeout", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
FAILED: tuple[Status, ...] = ("timeout", "error")  # nothing was found out about the reply


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one reply; `status` is "ok" whenever an answer was found and compared."""

    correct: bool
    extracted: str | None
    status: Status
    detail: str


def describe_verdict(correct: bool, extracted: str | None, status: str) -> tuple[str, str]:
    """("correct" or "wrong", what was answered); the second is empty where a verifier only said which."""
    unanswered = {"no_answer": "no answer found", "ok": ""}.get(status, f"not judged ({status})")
    answer = unanswered if extracted is None else f"answered {extracted}"
    return ("correct" if correct else "wrong"), answer

"""Conversations before and after training, as the report and the terminal show them."""

from dataclasses import replace

from smopd.evaluation.evaluate import Outcome
from smopd.viewer.report import ConversationPair

Turns = list[tuple[str, str]]


def conversation(turns: Turns, correct: bool, extracted: str | None, status: str = "ok") -> Outcome:
    exchanges = [{"user": user, "reply": reply} for user, reply in turns]
    verdict = {"correct": correct, "any_correct": correct, "extracted": extracted, "status": status}
    task = {"task": "math", "shards": len(turns), "system": "", "full": "", "answer": {}, "detail": ""}
    return Outcome(id="", view="sharded", run=0, turns=exchanges, **verdict, **task)


def conversation_pair(
    id: str, system: str, full: str, expected: str, before: Outcome, after: Outcome
) -> ConversationPair:
    return ConversationPair(replace(before, id=id, system=system, full=full), after, expected)

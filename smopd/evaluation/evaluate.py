"""Plays held-out conversations in FULL and SHARDED and counts right answers.

SHARDED success is the reply to the last shard; success at any turn is reported beside it. A verifier that failed is counted
apart, never as plain wrong.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from smopd.data import Example
from smopd.evaluation.statistics import paired, wilson
from smopd.evaluation.verifiers import Verdict, verify
from smopd.rollout import Conversation

View = Literal["full", "sharded"]
VIEWS: tuple[View, ...] = ("full", "sharded")


@dataclass(frozen=True)
class Outcome:
    """One conversation with the verdict on its last reply, and whether any reply of it was right."""

    conversation: Conversation
    verdict: Verdict
    any_correct: bool

    def to_json(self) -> dict[str, Any]:
        """One line of conversations.jsonl."""
        return {
            **self.conversation.to_json(),
            "task": self.conversation.example.task,
            "system": self.conversation.example.system,
            "full": self.conversation.example.full,
            "answer": dict(self.conversation.example.answer),
            "correct": self.verdict.correct,
            "any_correct": self.any_correct,
            "extracted": self.verdict.extracted,
            "status": self.verdict.status,
            "detail": self.verdict.detail,
        }


class Player(Protocol):
    """Whatever can play examples in both views: `Driver`, or `ChatDriver` for an endpoint."""

    def full(self, examples: Sequence[Example], seed: Sequence[int | str]) -> list[Conversation]:
        """Every example in one message."""

    def sharded(self, examples: Sequence[Example], seed: Sequence[int | str]) -> list[Conversation]:
        """Every example told shard by shard."""


def evaluate(
    driver: Player,
    examples: Sequence[Example],
    views: Sequence[View] = VIEWS,
    seed: int = 0,
    group: int = 64,
    report: Callable[[str, int, int], None] | None = None,
) -> dict[View, list[Outcome]]:
    """Outcomes by view, in the order of the examples. `report(view, done, total)` is called after every group."""
    outcomes: dict[View, list[Outcome]] = {}
    for view in views:
        outcomes[view] = []
        # Conversations of like length end together, so a group wastes no turn on a few stragglers.
        order = sorted(range(len(examples)), key=lambda i: len(examples[i].shards))
        found: dict[int, Outcome] = {}
        for first in range(0, len(order), group):
            chosen = order[first : first + group]
            play = driver.full if view == "full" else driver.sharded
            for i, conversation in zip(chosen, play([examples[i] for i in chosen], ("eval", seed)), strict=True):
                found[i] = judge(conversation)
            if report:
                report(view, len(found), len(examples))
        outcomes[view] = [found[i] for i in range(len(examples))]
    return outcomes


def judge(conversation: Conversation) -> Outcome:
    """Verify the last reply, and the earlier ones for the any-turn rule."""
    verdict = verify(conversation.example, conversation.final_text)
    earlier = (verify(conversation.example, turn.text).correct for turn in conversation.turns[:-1])
    return Outcome(conversation, verdict, verdict.correct or any(earlier))


def summarise(outcomes: dict[View, list[Outcome]]) -> dict[str, Any]:
    """Accuracies with 95% intervals, by view and task, and FULL against SHARDED paired by example."""
    summary: dict[str, Any] = {"views": {view: _view(rows) for view, rows in outcomes.items()}}
    if "full" in outcomes and "sharded" in outcomes:
        gap = paired([o.verdict.correct for o in outcomes["full"]], [o.verdict.correct for o in outcomes["sharded"]])
        summary["sharded_minus_full"] = paired_json(gap)
    return summary


def paired_json(result: Any) -> dict[str, Any]:
    """A paired comparison as JSON."""
    return {name: getattr(result, name) for name in ("n", "gained", "lost", "difference", "low", "high", "p")}


def _view(rows: list[Outcome]) -> dict[str, Any]:
    tasks = sorted({o.conversation.example.task for o in rows})
    statuses = sorted({o.verdict.status for o in rows})
    return {
        **_accuracy([o.verdict.correct for o in rows]),
        "any_turn": _accuracy([o.any_correct for o in rows]),
        "by_task": {task: _accuracy([o.verdict.correct for o in rows if o.conversation.example.task == task]) for task in tasks},
        "status": {status: sum(o.verdict.status == status for o in rows) for status in statuses},
        "reply_tokens": sum(len(t.reply) or t.tokens or 0 for o in rows for t in o.conversation.turns)
        / max(1, sum(len(o.conversation.turns) for o in rows)),
    }


def _accuracy(correct: Sequence[bool]) -> dict[str, Any]:
    low, high = wilson(sum(correct), len(correct))
    return {
        "accuracy": sum(correct) / max(1, len(correct)),
        "correct": sum(correct),
        "total": len(correct),
        "low": low,
        "high": high,
    }

"""Which replies of a rollout a term is about."""

from collections.abc import Callable, Sequence

from smopd.objective.plan import Replies
from smopd.objective.tokens import Moment
from smopd.rollout.play import Reply
from smopd.seeds import rng


def named(replies: Replies, name: str) -> Replies:
    """The same under the name that a plan shows."""
    replies.__name__ = name
    return replies


def where(condition: Callable[[Reply], bool]) -> Replies:
    """The replies for which a condition holds."""

    def chosen(replies: Sequence[Reply], moment: Moment) -> list[Reply]:
        return [reply for reply in replies if condition(reply)]

    return named(chosen, f"where({condition.__name__})")


def middle(replies: Sequence[Reply], moment: Moment) -> list[Reply]:
    """The replies to every user turn of a sharded conversation but the last."""
    return [reply for reply in replies if reply.view == "sharded" and not reply.last]


def answer(replies: Sequence[Reply], moment: Moment) -> list[Reply]:
    """The reply to the last user turn of a sharded conversation."""
    return [reply for reply in replies if reply.view == "sharded" and reply.last]


def full(replies: Sequence[Reply], moment: Moment) -> list[Reply]:
    """The reply to the whole task in one message."""
    return [reply for reply in replies if reply.view == "full"]


def every(replies: Sequence[Reply], moment: Moment) -> list[Reply]:
    """All of them."""
    return list(replies)


def first(count: int) -> Replies:
    """The first so many turns of a conversation."""
    return named(where(lambda reply: reply.turn < count), f"first({count})")


def judged(replies: Replies, correct: bool) -> Replies:
    """Those of rollouts whose answer was judged right, or wrong."""

    def chosen(candidates: Sequence[Reply], moment: Moment) -> list[Reply]:
        return [
            r for r in replies(candidates, moment) if r.verdict is not None and r.verdict.correct == correct
        ]

    return named(chosen, f"judged({replies.__name__}, {correct})")


def one_sampled(replies: Replies) -> Replies:
    """One of them, drawn for each rollout among those that are not empty."""

    def chosen(candidates: Sequence[Reply], moment: Moment) -> list[Reply]:
        eligible = [reply for reply in replies(candidates, moment) if reply.tokens]
        return [rng(*moment.draw, "turn", *eligible[0].draw).choice(eligible)] if eligible else []

    return named(chosen, f"one_sampled({replies.__name__})")


def sharded(replies: Sequence[Reply], moment: Moment) -> list[Reply]:
    """Every reply of a sharded conversation."""
    return [reply for reply in replies if reply.view == "sharded"]


def up_to_one_sampled(replies: Replies) -> Replies:
    """One of them, drawn for each rollout among those that are not empty, and before it all earlier ones."""

    def chosen(candidates: Sequence[Reply], moment: Moment) -> list[Reply]:
        eligible = [reply for reply in replies(candidates, moment) if reply.tokens]
        drawn = one_sampled(replies)(candidates, moment)
        return eligible[: eligible.index(drawn[0]) + 1] if drawn else []

    return named(chosen, f"up_to_one_sampled({replies.__name__})")

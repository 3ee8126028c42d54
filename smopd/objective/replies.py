"""Which replies of a rollout a term is about."""

from collections.abc import Callable, Sequence

from smopd.objective.contexts import is_middle
from smopd.objective.plan import Replies, part_name
from smopd.objective.tokens import Moment, set_name
from smopd.rollout.play import Reply
from smopd.seeds import rng


def where(condition: Callable[[Reply], bool], name: str = "") -> Replies:
    name = name or f"where({part_name(condition)})"
    return set_name(lambda replies, moment: [reply for reply in replies if condition(reply)], name)


every = where(lambda reply: True, "every")
sharded = where(lambda reply: reply.view == "sharded", "sharded")
middle = where(is_middle, "middle")  # to every user turn of a sharded conversation but the last
answer = where(lambda reply: reply.view == "sharded" and reply.last, "answer")  # to the last one
full = where(lambda reply: reply.view == "full", "full")  # to the whole task in one message


def first(count: int) -> Replies:
    """The first so many turns of a conversation."""
    return where(lambda reply: reply.turn < count, f"first({count})")


def judged(replies: Replies, correct: bool) -> Replies:
    """Those of rollouts whose answer was judged right, or wrong."""

    def chosen(candidates: Sequence[Reply], moment: Moment) -> list[Reply]:
        return [r for r in replies(candidates, moment) if r.verdict and r.verdict.correct == correct]

    return set_name(chosen, f"judged({part_name(replies)}, {correct})")


def up_to_one_sampled(replies: Replies) -> Replies:
    """One of them, drawn for each rollout among those that are not empty, and before it all earlier ones."""

    def chosen(candidates: Sequence[Reply], moment: Moment) -> list[Reply]:
        eligible = [reply for reply in replies(candidates, moment) if reply.tokens]
        if not eligible:
            return []
        drawn = rng(*moment.draw, "turn", *eligible[0].draw).choice(range(len(eligible)))
        return eligible[: drawn + 1]

    return set_name(chosen, f"up_to_one_sampled({part_name(replies)})")


def one_sampled(replies: Replies) -> Replies:
    """One of them, drawn for each rollout among those that are not empty."""
    up_to_drawn, name = up_to_one_sampled(replies), f"one_sampled({part_name(replies)})"
    return set_name(lambda candidates, moment: up_to_drawn(candidates, moment)[-1:], name)

"""What a model is shown of an example, before any chat template: the messages of a context; and the views,
what the user says, turn by turn. Wording is ours, the content the example's.
"""

from collections.abc import Iterable
from typing import Literal, get_args

from smopd.data import Example

Message = dict[str, str]  # role, content
# How user turns stand in a clean context: a message each, in one message, in one with the first at its end.
Clean = Literal["separate", "merged", "goal-last"]
View = Literal["full", "concat", "sharded", "recap", "snowball", "simulated", "teacher"]
VIEWS: tuple[View, ...] = get_args(View)

CONCAT = "Here is what I need, point by point. Take all of the points into account.\n\n{shards}"
RECAP = "To sum up, this is everything I have told you:\n\n{shards}\n\n"
RECAP += "Now give me your final answer to all of it."
SNOWBALL = "What I have told you so far:\n\n{shards}\n\nAnd now: {new}"


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def system_messages(example: Example) -> list[Message]:
    return [{"role": "system", "content": example.system}] if example.system else []


def full_messages(example: Example) -> list[Message]:
    """The whole task in one message: the FULL view, and the clean context of the answer turn."""
    return [*system_messages(example), user(example.full)]


def users_messages(example: Example, turn: int, form: Clean = "separate") -> list[Message]:
    """The user turns up to `turn` (from 0) and no reply: the clean context of a middle turn."""
    turns = list(example.shards[: turn + 1])
    if form != "separate":
        turns = ["\n\n".join(turns if form == "merged" else [*turns[1:], turns[0]])]
    return [*system_messages(example), *map(user, turns)]


def clean_messages(example: Example, turn: int, form: Clean = "separate") -> list[Message]:
    """What the teacher sees for the reply to shard `turn`: for the last one the whole task."""
    return full_messages(example) if turn == len(example.shards) - 1 else users_messages(example, turn, form)


def user_turns(example: Example, view: View) -> tuple[str, ...]:
    shards = example.shards
    if view == "full":
        return (example.full,)
    if view == "concat":
        return (CONCAT.format(shards=_bullets(shards)),)
    if view == "sharded":
        return shards
    if view == "recap":
        return (*shards, RECAP.format(shards=_bullets(shards)))
    if view == "snowball":
        later = (SNOWBALL.format(shards=_bullets(shards[:k]), new=shards[k]) for k in range(1, len(shards)))
        return (shards[0], *later)
    if view == "teacher":  # every turn in a context of its own, the last with the whole task
        return (*shards[:-1], example.full)
    raise ValueError(f"{view}: what the user says is not known beforehand")


def _bullets(shards: Iterable[str]) -> str:
    return "\n".join(f"- {shard}" for shard in shards)

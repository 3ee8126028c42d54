"""The views of an example: what the user says, turn by turn. Wording is ours, the content the example's."""

from collections.abc import Iterable
from typing import Literal, get_args

from smopd.data import Example

View = Literal["full", "concat", "sharded", "recap", "snowball", "simulated", "teacher"]
VIEWS: tuple[View, ...] = get_args(View)

CONCAT = "Here is what I need, point by point. Take all of the points into account.\n\n{shards}"
RECAP = "To sum up, this is everything I have told you:\n\n{shards}\n\n"
RECAP += "Now give me your final answer to all of it."
SNOWBALL = "What I have told you so far:\n\n{shards}\n\nAnd now: {new}"


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

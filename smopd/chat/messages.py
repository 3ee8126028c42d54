"""The messages of a context: what a model is shown of an example, before any chat template."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from smopd.data import Example

Message = dict[str, str]  # role, content
# How user turns stand in a clean context: a message each, in one message, in one with the first at its end.
Clean = Literal["separate", "merged", "goal-last"]


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def system_messages(example: "Example") -> list[Message]:
    return [{"role": "system", "content": example.system}] if example.system else []


def full_messages(example: "Example") -> list[Message]:
    """The whole task in one message: the FULL view, and the clean context of the answer turn."""
    return [*system_messages(example), user(example.full)]


def users_messages(example: "Example", turn: int, form: Clean = "separate") -> list[Message]:
    """The user turns up to `turn` (from 0) and no reply: the clean context of a middle turn."""
    turns = list(example.shards[: turn + 1])
    if form != "separate":
        turns = ["\n\n".join(turns if form == "merged" else [*turns[1:], turns[0]])]
    return [*system_messages(example), *map(user, turns)]


def clean_messages(example: "Example", turn: int, form: Clean = "separate") -> list[Message]:
    """What the teacher sees for the reply to shard `turn`: for the last one the whole task."""
    last = turn == len(example.shards) - 1
    return full_messages(example) if last else users_messages(example, turn, form)

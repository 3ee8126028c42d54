"""The messages of a context: what a model is shown of an example, before any chat template."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smopd.data import Example

Message = dict[str, str]  # role, content


def user(content: str) -> Message:
    """A user's message."""
    return {"role": "user", "content": content}


def system_messages(example: "Example") -> list[Message]:
    """The system prompt, if the example has one."""
    return [{"role": "system", "content": example.system}] if example.system else []


def full_messages(example: "Example") -> list[Message]:
    """The whole task in one message: the FULL view, and the clean context of the answer turn."""
    return [*system_messages(example), user(example.full)]


def users_messages(example: "Example", turn: int) -> list[Message]:
    """The user turns up to `turn` (from 0) and no reply: the clean context of a middle turn."""
    return [*system_messages(example), *(user(shard) for shard in example.shards[: turn + 1])]

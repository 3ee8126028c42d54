"""What the teacher sees for a reply: weighted contexts, each a list of messages or token ids as they are.

The teacher's logits are the weighted sum over the contexts. A context function gets the reply and the step's
other rollouts; an empty list leaves the reply out of its term.
"""

from dataclasses import dataclass
from typing import get_args

from smopd.chat.messages import Clean, Message, full_messages, system_messages, user, users_messages
from smopd.objective.plan import Context, Contexts, TeacherContext
from smopd.plugins import check_word
from smopd.rollout.play import Peers, Reply, group_of
from smopd.seeds import rng
from smopd.verify import tasks


@dataclass(frozen=True)
class UsersOnly:
    """The user turns up to the reply's, and no reply at all: a message each, or told in another form."""

    form: Clean = "separate"

    def __post_init__(self) -> None:
        check_word("the form of user turns", self.form, get_args(Clean))

    def __str__(self) -> str:
        return "users_only" + (f"({self.form})" if self.form != "separate" else "")

    def __call__(self, reply: Reply, peers: Peers) -> Contexts:
        return [(1.0, users_messages(reply.example, reply.turn, self.form))]


users_only = UsersOnly()


def whole_task(reply: Reply, peers: Peers) -> Contexts:
    return [(1.0, full_messages(reply.example))]


def clean(reply: Reply, peers: Peers) -> Contexts:
    """For a middle reply the user turns so far, for any other the complete task."""
    return [(1.0, shown(reply))]


def dirty(reply: Reply, peers: Peers) -> Contexts:
    """The very tokens the student saw, its own earlier replies among them."""
    return [(1.0, reply.context)]


def users_and_task(reply: Reply, peers: Peers) -> Contexts:
    """The user turns up to the reply's, then the complete task."""
    return [(1.0, [*users_messages(reply.example, reply.turn), user(reply.example.full)])]


def with_reference(reply: Reply, peers: Peers) -> Contexts:
    """What `clean` shows, and the reference answer; nothing for examples that hold none."""
    hint = "For your information, a correct final answer is:\n"
    return [(1.0, hinted(reply, hint + known)) for known in references(reply)]


def mixed(*parts: tuple[float, TeacherContext]) -> TeacherContext:
    """The weighted sum of several contexts' logits; a reply that one of them leaves out is left out."""

    def contexts(reply: Reply, peers: Peers) -> Contexts:
        weighted = [(weight, context(reply, peers)) for weight, context in parts if weight]
        if not all(of_part for _, of_part in weighted):
            return []
        return [(weight * share, messages) for weight, of_part in weighted for share, messages in of_part]

    return contexts


def is_middle(reply: Reply) -> bool:
    """Whether it answers a user turn of a sharded conversation that is not the last."""
    return reply.view == "sharded" and not reply.last


def shown(reply: Reply) -> list[Message]:
    example = reply.example
    return users_messages(example, reply.turn) if is_middle(reply) else full_messages(example)


def hinted(reply: Reply, hint: str) -> list[Message]:
    """The messages of `clean` with something more in the last one: some templates refuse two user turns."""
    *before, last = shown(reply)
    return [*before, user(f"{last['content']}\n\n{hint}")]


def references(reply: Reply) -> list[str]:
    """The reference answer of the reply's example as text; empty where its task knows none."""
    task = tasks.find(reply.example.task)
    return list(task.reference_replies(reply.example.answer))[:1] if task else []


def attempts(reply: Reply, peers: Peers, correct: bool, with_own: bool = False) -> list[str]:
    """Final replies of the same group that were judged so; with `with_own` that of its own rollout too."""
    judged = [r for r in peers.rollouts if group_of(r) == group_of(reply) and r.verdict]
    chosen = [r for r in judged if r.correct == correct and (with_own or r.sample != reply.sample)]
    return [rollout.conversations[0].final_text for rollout in chosen]


def other_users(reply: Reply, peers: Peers, count: int = 1) -> list[Context]:
    """The user turns of other examples of the step, as many as the reply's example has shown of its own."""
    others = peers.others(reply, count)
    return [users_messages(example, min(reply.turn, len(example.shards) - 1)) for example in others]


def shuffled_users(reply: Reply, peers: Peers) -> list[Message]:
    """The user turns up to the reply's, the goal first and the others in a drawn order."""
    first, *others = reply.example.shards[: reply.turn + 1]
    rng(*peers.draw, "shuffled", *reply.draw).shuffle(others)
    return [*system_messages(reply.example), *map(user, [first, *others])]

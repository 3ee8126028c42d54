"""What is computed for a plan's terms: each reply that some term wants, under each teacher it asks about."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from smopd.chat.template import Renderer
from smopd.config_io import choices
from smopd.objective.loss import Pool, key_of, pool_of
from smopd.objective.plan import Context, Contexts, Plan, Term
from smopd.objective.tokens import Moment
from smopd.plugins import Unexpected, describe_value, is_number, unexpected
from smopd.rollout.play import Peers, Reply

NO_TEACHER = "none"
ROLES = ["system", "user", "assistant", "tool"]


@dataclass
class ScoringRequest:
    """One reply under one teacher, and the terms that want it: their row losses share both products."""

    reply: int  # its number
    weights: str
    contexts: Contexts
    auxiliary: tuple[str, Sequence[Context]] = (NO_TEACHER, ())  # weights and contexts of further columns
    terms: list[Term] = field(default_factory=list, compare=False)  # two are equal, whoever wants them


def scoring_requests(
    rollouts: Sequence[Sequence[Reply]], plan: Plan, moment: Moment, peers: Peers
) -> tuple[list[Reply], list[ScoringRequest], dict[tuple[int, str], list[int]]]:
    """The replies that some term wants, what is computed for them, and by (rollout, term) reply numbers. A
    rollout is given by its replies. Empty ones, and those a teacher has nothing to say of, are left out.
    """
    replies: list[Reply] = []
    units: list[ScoringRequest] = []
    wanted: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, played in enumerate(rollouts):
        chosen = {term.name: _choose_replies(term, played, moment) for term in plan.terms}
        for reply in played:
            of_reply: list[ScoringRequest] = []
            for term in plan.scored if reply.tokens else ():
                if key_of(reply) not in chosen[term.name]:
                    continue
                if not (contexts := teacher_contexts(term, reply, peers)) and term.teacher:
                    continue
                if not (more := _further_contexts(term, reply, peers)) and term.auxiliary:
                    continue
                weights = term.weights if term.teacher else NO_TEACHER
                auxiliary = (term.auxiliary.weights if term.auxiliary else NO_TEACHER, more)
                unit = ScoringRequest(len(replies), weights, contexts, auxiliary)
                if unit not in of_reply:
                    of_reply.append(unit)
                of_reply[of_reply.index(unit)].terms.append(term)
                wanted[number, term.name].append(len(replies))
            if of_reply:
                replies.append(reply)
                units += of_reply
    return replies, units, wanted


def _choose_replies(term: Term, played: Sequence[Reply], moment: Moment) -> set[tuple[str, int, str, int]]:
    with term.calling("replies"):
        chosen, expected = term.replies(played, moment), "a list of replies out of those it was given"
        if not isinstance(chosen, (list, tuple)) or not all(isinstance(reply, Reply) for reply in chosen):
            raise unexpected(chosen, expected)
        keys = set(map(key_of, chosen))
        if not keys <= set(map(key_of, played)):
            raise Unexpected(f"returned replies of another rollout, expected {expected}")
    return keys


def teacher_contexts(term: Term, reply: Reply, peers: Peers) -> list[tuple[float, Context]]:
    """What the term's teacher sees for a reply; empty without a teacher."""
    if term.teacher is None:
        return []
    with term.calling("teacher"):
        pairs = _as_list(term.teacher(reply, peers), "(weight, messages) pairs")
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not is_number(pair[0]):
                what = describe_value(pair)
                raise Unexpected(f"returned a list with {what} in it, expected (weight, messages) pairs")
        return [(weight, _checked_context(context)) for weight, context in pairs]


def _further_contexts(term: Term, reply: Reply, peers: Peers) -> list[Context]:
    if term.auxiliary is None:
        return []
    with term.calling("auxiliary"):
        return [_checked_context(c) for c in _as_list(term.auxiliary.contexts(reply, peers), "contexts")]


def _as_list(returned: Any, items: str) -> list[Any]:
    if isinstance(returned, (str, Mapping)) or not isinstance(returned, Iterable):
        raise unexpected(returned, f"a list of {items}")
    return list(returned)


def context_ids(term: Term, part: str, context: Context, renderer: Renderer, size: int) -> Sequence[int]:
    """Token ids of a context; what the chat template, or a vocabulary of this size, lacks is refused."""
    with term.calling(part):
        ids = context if isinstance(context, tuple) else renderer.ids(context)
        if ids is context and any(not isinstance(bad := i, Integral) or not 0 <= i < size for i in ids):
            raise Unexpected(f"returned the token id {bad!r}, expected 0 to {size - 1}")
    return ids


def _checked_context(context: Any) -> Context:
    """Refuse what is neither messages nor, by the first of them, token ids."""
    if isinstance(context, tuple) and context and type(context[0]) is int:
        return context
    if not isinstance(context, list) or not context:
        what = describe_value(context)
        raise Unexpected(f"returned the context {what}, expected a list of messages or a tuple of token ids")
    for message in context:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise Unexpected(f"returned the message {message!r:.80}, expected a role and a content (text)")
        if (role := message.get("role")) not in ROLES:
            raise Unexpected(f"returned a message of the role {role!r}{choices(str(role), ROLES, 'roles')}")
    return context


def token_counts(
    rollouts: Sequence[Sequence[Reply]], plan: Plan, moment: Moment, peers: Peers
) -> dict[tuple[str, Pool], float]:
    """By (term, pool), the divisors of terms that count all tokens of a group or of the step."""
    replies, units, _ = scoring_requests(rollouts, plan, moment, peers)
    counts: dict[tuple[str, Pool], float] = defaultdict(float)
    for unit in units:
        for term in unit.terms:
            if term.per != "reply" and term.mean_over == "all":
                counts[term.name, pool_of(term, replies[unit.reply])] += len(replies[unit.reply].tokens)
    return dict(counts)

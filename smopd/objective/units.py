"""What is computed for a plan's terms: every reply that some term wants, under every teacher that is asked
about it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from smopd.objective.loss import Pool, key_of, pool_of
from smopd.objective.plan import Context, Contexts, Plan, Term
from smopd.objective.tokens import Moment
from smopd.rollout.play import Peers, Reply
from smopd.scoring.losses import RowLoss

NO_TEACHER = "none"


@dataclass
class Unit:
    """One reply under one teacher, and the terms that want it: their row losses share both products."""

    reply: int  # its number
    weights: str
    contexts: Contexts
    auxiliary: tuple[str, Sequence[Context]] = (NO_TEACHER, ())  # weights and contexts of further columns
    terms: list[Term] = field(default_factory=list)

    def same(self, other: "Unit") -> bool:
        """Whether both ask the same of the same models, so that their terms can share it."""
        return (self.weights, self.contexts, self.auxiliary) == (
            other.weights, other.contexts, other.auxiliary
        )  # fmt: skip

    @property
    def losses(self) -> tuple[RowLoss, ...]:
        """What is computed for it, a column each."""
        return tuple(term.loss for term in self.terms)


def units_of(
    rollouts: Sequence[Sequence[Reply]], plan: Plan, moment: Moment, peers: Peers
) -> tuple[list[Reply], list[Unit], dict[tuple[int, str], list[int]]]:
    """The replies that some term wants, what is computed for them, and (rollout, term) -> numbers of its
    replies.

    A rollout is given by its replies. Empty replies, and those a teacher has nothing to say of, are left out.
    """
    replies: list[Reply] = []
    units: list[Unit] = []
    wanted: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number, played in enumerate(rollouts):
        chosen = {term.name: {key_of(r) for r in term.replies(played, moment)} for term in plan.scored}
        for reply in played:
            of_reply: list[Unit] = []
            for term in plan.scored if reply.tokens else ():
                if key_of(reply) not in chosen[term.name]:
                    continue
                contexts = list(term.teacher(reply, peers)) if term.teacher else []
                if term.teacher and not contexts:
                    continue
                more = list(term.auxiliary.contexts(reply, peers)) if term.auxiliary else []
                if term.auxiliary and not more:
                    continue
                wanted_unit = Unit(
                    len(replies), term.weights if term.teacher else NO_TEACHER, contexts,
                    (term.auxiliary.weights if term.auxiliary else NO_TEACHER, more),
                )  # fmt: skip
                unit = next((u for u in of_reply if u.same(wanted_unit)), None)
                if unit is None:
                    of_reply.append(unit := wanted_unit)
                unit.terms.append(term)
                wanted[number, term.name].append(len(replies))
            if of_reply:
                replies.append(reply)
                units += of_reply
    return replies, units, wanted


def token_counts(
    rollouts: Sequence[Sequence[Reply]], plan: Plan, moment: Moment, peers: Peers
) -> dict[tuple[str, Pool], float]:
    """By (term, pool), what terms are divided by that count all tokens of a group or of the step: known
    before anything is scored.
    """
    replies, _, wanted = units_of(rollouts, plan, moment, peers)
    counting = {t.name: t for t in plan.scored if t.per != "reply" and t.mean_over == "all"}
    counts: dict[tuple[str, Pool], float] = defaultdict(float)
    for (_, name), numbers in wanted.items():
        for reply in [replies[k] for k in numbers] if name in counting else ():
            counts[name, pool_of(counting[name], reply)] += len(reply.tokens)
    return dict(counts)

"""Explain why a step gave no gradient: the cause by term, and whether it lies in the verdicts."""

from collections.abc import Sequence
from dataclasses import replace

from smopd.objective import Moment, Plan, RolloutLoss, Term, Tokens, decide
from smopd.objective.loss import key_of
from smopd.objective.plan import part_name
from smopd.objective.scoring_requests import scoring_requests
from smopd.rollout import Peers, Reply, Rollout
from smopd.scoring import TokenStats
from smopd.training.player import grade_groups

Scored = list[tuple[Reply, TokenStats]]  # the replies of one term


def explain(
    rollouts: list[Rollout], losses: Sequence[RolloutLoss], plan: Plan, moment: Moment, finite: bool
) -> tuple[str, bool]:
    """Return the cause, and whether more such steps should stop the run: not if other verdicts would have
    given a gradient (as in groups that are all right or all wrong), nor while conversations are cut short and
    longer ones follow. `finite`: loss and gradient are.
    """
    scored = {t.name: [pair for loss in losses for pair in loss.terms[t.name].scored()] for t in plan.scored}
    not_finite = {t.name: _describe_not_finite(losses, scored[t.name], t, finite) for t in plan.scored}
    if any(not_finite.values()):
        return _format_causes({name: cause for name, cause in not_finite.items() if cause}), True
    if not finite:
        return "every term's loss is finite, but the gradient is not", True
    moving = _find_moving(rollouts, scored, plan, moment)
    missing = {t.name: _explain_missing(rollouts, scored[t.name], t, plan, moment) for t in plan.scored}
    for name in moving:
        weighted = any(loss.terms[name].turn_weights.any() for loss in losses)
        agree = f"student and teacher agree on all {_count_kept(scored[name])} tokens that it keeps"
        missing[name] = agree if weighted else "its turn weight is 0 for every reply"
    cause = _format_causes(missing)
    if moving and any(play.turns for play in plan.plays):
        return cause, False
    others = [_set_verdicts(rollouts, plan, right) for right in (0, 1)]
    return cause, not any(_find_moving(other, scored, plan, moment) - moving for other in others)


def _format_causes(causes: dict[str, str]) -> str:
    return "; ".join(f"term {name!r}: {cause}" for name, cause in causes.items())


def _count_kept(scored: Scored) -> int:
    return sum(int((stats.weight != 0).sum()) for _, stats in scored if stats.weight is not None)


def _describe_not_finite(losses: Sequence[RolloutLoss], scored: Scored, term: Term, finite: bool) -> str:
    """Say which part of a term is NaN or, unless `finite`, infinite (a cap makes infinities finite)."""
    for name, what in (("divergence", "loss"), ("weight", f"token weight ({part_name(term.tokens)})")):
        columns = [column for _, stats in scored if (column := getattr(stats, name)) is not None]
        if bad := sum(int((c.isnan() if finite else ~c.isfinite()).sum()) for c in columns):
            return f"the {what} is not finite on {bad} of {sum(map(len, columns))} tokens"
    whole = all(loss.terms[term.name].value.isfinite() for loss in losses)
    return "" if whole else f"the turn weight ({part_name(term.turns)}) is not finite"


def _explain_missing(rollouts: list[Rollout], scored: Scored, term: Term, plan: Plan, moment: Moment) -> str:
    if not scored:
        chosen = [reply for r in rollouts for reply in term.replies(r.replies(), moment)]
        count = sum(bool(reply.tokens) for reply in chosen)
        if not count:
            return f"all of its {len(chosen)} replies are empty" if chosen else "no reply is chosen for it"
        parts = ", ".join(part_name(part) for part in (term.teacher, term.auxiliary) if part)
        return f"the teacher had no context for any of its {count} replies ({parts})"
    if kept := _count_kept(scored):
        return f"all {kept} tokens that it keeps are over its cap {term.cap}"
    if plan.grade and not any(r.advantage for r in rollouts):
        return "all advantages are 0"
    tokens = sum(len(stats.entropy) for _, stats in scored)
    return f"the token weight kept none of {tokens} tokens ({part_name(term.tokens)})"


def _find_moving(rollouts: list[Rollout], scored: dict[str, Scored], plan: Plan, moment: Moment) -> set[str]:
    """The terms with a token that gets a gradient, or with a reply that was not scored."""
    replies = [r.replies() for r in rollouts]
    _, _, wanted = scoring_requests(replies, plan, moment, Peers(rollouts, moment.draw, moment.done))
    by_key = {key_of(reply): reply for of_rollout in replies for reply in of_rollout}
    moving = set()
    for term in plan.scored:
        tokens = [Tokens(stats, by_key[key_of(reply)], moment) for reply, stats in scored[term.name]]
        replies_now = sum(len(numbers) for (_, name), numbers in wanted.items() if name == term.name)
        if replies_now > len(tokens) or (tokens and any(d.has_gradient.any() for d in decide(term, tokens))):
            moving.add(term.name)
    return moving


def _set_verdicts(rollouts: Sequence[Rollout], plan: Plan, right: int) -> list[Rollout]:
    """Copy the rollouts with every other one judged right, and grade them again."""
    other = [
        replace(r, verdicts=tuple(v and replace(v, correct=number % 2 == right) for v in r.verdicts))
        for number, r in enumerate(rollouts)
    ]
    return grade_groups(other, plan.grade) if plan.grade else other

"""Tries every part of a plan on a toy batch, before a model is loaded: rollouts with made-up replies and
statistics, right and wrong ones, at the first and the last step of a run.

Results are checked where parts are called, and here that numbers are finite and that a row loss has a
gradient and looks at each row alone. What the plan does not give is NaN here: a teacher's statistics in a
term without one, advantages in a plan without a grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan

from smopd.chat.messages import user_turns
from smopd.chat.template import Renderer
from smopd.data.example import Example
from smopd.lazy import torch
from smopd.objective.grades import grade_groups
from smopd.objective.loss import decide, term_loss
from smopd.objective.plan import Plan, Term
from smopd.objective.scoring_requests import context_ids, scoring_requests
from smopd.objective.tokens import Moment, Tokens
from smopd.plugins import Unexpected
from smopd.rollout.driver import Conversation, Turn
from smopd.rollout.engine import Stop
from smopd.rollout.play import Peers, Play, Rollout, graded
from smopd.scoring.losses import VOCABULARY, Rows, random_rows, row_values
from smopd.scoring.stats import TokenStats
from smopd.verify.verdict import Verdict

LENGTHS = (8, 1, 5)  # tokens of the replies, in turn: very short ones are sampled too
CONTEXT = (1, 2, 3)
TOYS = [
    Example(f"toy {k}", "math", "", ("What is x?", f"x is y + {k}.", "y is 1."), f"What is {k} + 1?",
            {"value": str(k + 1)})
    for k in range(3)
]  # fmt: skip


def try_parts(
    plan: Plan, steps: int, examples: Sequence[Example] = (), renderer: Renderer | None = None
) -> None:
    """Raise what is wrong with a part, as a UserError; `examples`, `renderer`: the run's, if at hand."""
    with torch.random.fork_rng(devices=[]):
        for term in plan.scored:
            with term.calling("loss"):
                _try_loss(term, max(VOCABULARY, renderer.vocabulary if renderer else 0))
        for step in sorted({1, steps}):
            _try_step(plan, Moment(step, steps, (0, step)), examples[:3] or TOYS, renderer)


def _try_loss(term: Term, vocabulary: int) -> None:
    rows = random_rows(1, vocabulary=vocabulary, auxiliary=3 if term.auxiliary else 0)
    before = rows.teacher.clone(), rows.tokens.clone()
    values = row_values(term.loss, rows)
    _check_finite(values)
    (slope,) = torch.autograd.grad(values.sum(), rows.student)
    if not slope.isfinite().all():
        raise Unexpected("has a gradient that is not finite")
    if not torch.equal(before[0], rows.teacher) or not torch.equal(before[1], rows.tokens):
        raise Unexpected("changed the rows it was given; work on copies")
    some = Rows(*(None if column is None else column[:3] for column in rows))  # type: ignore[arg-type]
    if not torch.allclose(row_values(term.loss, some), values[:3], rtol=1e-3, atol=1e-5):
        raise Unexpected("gives a row another value when other rows are beside it: sum over the last axis")


def _try_step(plan: Plan, moment: Moment, examples: Sequence[Example], renderer: Renderer | None) -> None:
    rollouts = _play(plan, moment.step, examples)
    rollouts = grade_groups(rollouts, plan.grade) if plan.grade else graded(rollouts, [nan] * len(rollouts))
    peers = Peers(rollouts, moment.draw, moment.done)
    replies, units, wanted = scoring_requests([r.replies() for r in rollouts], plan, moment, peers)
    for unit in units:
        for part, contexts in (("teacher", [c for _, c in unit.contexts]), ("auxiliary", unit.auxiliary[1])):
            for context in contexts:
                if renderer:
                    context_ids(unit.terms[0], part, context, renderer, renderer.vocabulary)
    stats = {
        (unit.reply, term.name): _statistics(len(replies[unit.reply].tokens), term, len(unit.auxiliary[1]))
        for unit in units
        for term in unit.terms
    }
    for term in plan.scored:
        lacking = _explain_missing(plan, term)
        numbers = [k for k, name in stats if name == term.name]
        tokens = [Tokens(stats[k, term.name], replies[k], moment) for k in numbers]
        before = _count_writes(tokens)
        decisions = decide(term, tokens) if term.needs_whole_step else [decide(term, [t])[0] for t in tokens]
        with term.calling("tokens"):
            if before != _count_writes(tokens):
                raise Unexpected("changed the statistics it was given; work on copies")
            for decision in decisions:
                _check_finite(decision.weight, lacking)
        for k, decision in zip(numbers, decisions, strict=True):
            stats[k, term.name] = replace(stats[k, term.name], weight=decision.weight)
        for number, rollout in enumerate(rollouts):
            chosen = wanted.get((number, term.name), [])
            asked, of_term = [replies[k] for k in chosen], [stats[k, term.name] for k in chosen]
            share = None if term.per == "reply" else 1.0
            loss = term_loss(term, asked, of_term, rollout.correct, torch.zeros(()), share)
            with term.calling("turns"):
                _check_finite(loss.turn_weights, lacking)
        term.logged(moment)


def _count_writes(tokens: Sequence[Tokens]) -> list[int]:
    return [column._version for t in tokens for column in (t.divergence, t.entropy, t.student_logp)]


def _check_finite(values: torch.Tensor, lacking: str = "") -> None:
    if len(bad := values[~values.isfinite()]):
        count = f"{len(bad)} of {len(values)} numbers"
        raise Unexpected(f"returned {bad[0].item()} in {count}, expected finite ones{lacking}")


def _explain_missing(plan: Plan, term: Term) -> str:
    reasons = [] if term.teacher else ["the term has no teacher"]
    reasons += [] if plan.grade else ["the plan has no grade, hence no advantages"]
    return f" ({'; '.join(reasons)})" if reasons else ""


def _play(plan: Plan, step: int, examples: Sequence[Example]) -> list[Rollout]:
    """As many rollouts of every example as the plan samples: a mixed group, a wrong one and a right one."""
    first, *others = plan.plays
    beside = [first, *(play for play in others if not play.instead)]
    instead = [play for play in others if play.instead] or beside
    rollouts = []
    for number, example in enumerate(examples):
        for sample in range(plan.samples):
            plays = instead if number == 1 else beside
            talks = tuple(_conversation(example, play, step, number + sample) for play in plays)
            verdict = Verdict((sample % 2 == 0, False, True)[number], "2", "ok", "")
            judged = (verdict if p.verify and not t.cut else None for p, t in zip(plays, talks, strict=True))
            rollouts.append(Rollout(example, talks, tuple(judged), sample))
    return rollouts


def _conversation(example: Example, play: Play, step: int, seed: int) -> Conversation:
    users = user_turns(example, play.view)
    most = play.turns_at(step) or len(users)
    talk = Conversation(example, play.view, list(users[:most]), cut=most < len(users))
    for turn in range(len(talk.asked)):
        reply = tuple(range(LENGTHS[(turn + seed) % len(LENGTHS)]))
        talk.turns.append(Turn(CONTEXT, reply, Stop.END, "It is 2.", tuple(-1.0 for _ in reply)))
    return talk


def _statistics(count: int, term: Term, contexts: int) -> TokenStats:
    def some(known: bool = True) -> torch.Tensor:
        return torch.rand(count) + 0.1 if known else torch.full((count,), nan)

    taught = term.teacher is not None
    auxiliary = -torch.rand(count, contexts) if contexts else None
    cost = some().requires_grad_()
    logps = -some(), -some(taught)
    return TokenStats(cost, some(), some(taught), *logps, None, -0.1 * some(taught), auxiliary)

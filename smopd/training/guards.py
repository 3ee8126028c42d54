"""Warnings about a run that silently goes wrong, with advice, each given once. They depend on metrics and
evaluations only, so a resumed run gives the same ones as an uninterrupted run.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import sqrt
from statistics import fmean
from typing import Any

import torch

from smopd.config import Config, plan_of
from smopd.errors import UserError
from smopd.objective.caps import Cap
from smopd.objective.plan import Plan
from smopd.runs.layout import WARNINGS
from smopd.runs.writer import RunFolder
from smopd.verify.verdict import FAILED, STATUSES

log = logging.getLogger("smopd")
Row = Mapping[str, Any]
Due = tuple[str, str]  # the cause, each reported once, and the message

MOSTLY = 0.5  # share of a term's tokens without a gradient above which a minority sets the direction
PARTLY = 0.25  # the same where no answer is ever right: a quarter is enough to name it as a cause
CLIPPED_STEPS = 3  # in a row: one step may have odd examples, waiting longer would waste a short run
WINDOW = 5  # steps averaged at the beginning and at the end: 40 rollouts at 8 per step
ZERO_STEPS = 10  # steps without a correct answer, with at least ZERO_VERDICTS answers
FAILED_VERDICTS = 4  # at the beginning: a verifier that fails on all of them rarely recovers
ZERO_VERDICTS = 64  # with 5% correct, this many wrong answers in a row have a probability of 4%
SHRUNK = 1 / 3  # of the initial reply length; a student that learns to be brief rarely goes below
LEAST_TOKENS = 8.0  # replies that begin shorter than this are not checked for shrinking
AT_LIMIT = 0.9  # share of replies; a few long ones are cut in a healthy run too
LOOPING = 0.2  # share of replies; sampled replies of a healthy model hardly ever loop
NO_ENTROPY = 0.01  # nats: about one token in a thousand differs, so all rollouts are alike ...
FADED = 0.1  # ... if it also fell to a tenth: some models are this certain from the beginning
MUCH_ENTROPY = 2.0  # nats: like a uniform choice among seven tokens ...
GREW = 3.0  # ... if it also tripled
FALL = 0.05  # a smaller drop of FULL is not worth a warning, however significant
ERRORS = 2.0  # standard errors between two evaluations on the same examples
BRANCH_ERRORS = 3.0  # the same between verdicts on different examples, checked after every step
BRANCH_VERDICTS = 30  # verdicts of the FULL branch at the beginning and at the end


@dataclass(frozen=True)
class Watched:
    config: Config
    plan: Plan
    rows: Sequence[Row]
    evaluations: Sequence[Row] = ()
    examples: int = 0  # per evaluation

    def values(self, name: str) -> list[float]:
        return [row[name] for row in self.rows if row.get(name) is not None]

    def ends(self, metric: str) -> Iterator[tuple[str, float, float]]:
        """By term, a metric's means over the first and the last WINDOW steps, where these do not overlap."""
        for term in self.plan.scored:
            values = self.values(f"{metric}/{term.name}")
            if len(values) >= 2 * WINDOW:
                yield term.name, fmean(values[:WINDOW]), fmean(values[-WINDOW:])


def give_warnings(config: Config, plan: Plan, folder: RunFolder, step: int, examples: int = 0) -> None:
    known = {row["cause"] for row in folder.warnings()}
    for cause, message in due(Watched(config, plan, folder.metrics(), folder.evaluations(), examples)):
        if cause not in known:
            known.add(cause)
            log.warning("step %d: %s", step, message)
            folder.append(WARNINGS, {"step": step, "cause": cause, "warning": message})


def due(watched: Watched) -> Iterator[Due]:
    for guard in GUARDS:
        yield from guard(watched)


def _check_clipping(watched: Watched, steps: int = CLIPPED_STEPS, least: float = MOSTLY) -> Iterator[Due]:
    for term in watched.plan.scored:
        last = watched.values(f"clipped/{term.name}")[-steps:]
        if _drops(term.cap) and len(last) == steps and min(last) > least:
            share = f"{fmean(last):.0%} of the tokens of the term {term.name} are over its cap {term.cap}"
            remedy = _suggest_uncapping(watched.config, term.name)
            yield f"clipped/{term.name}", f"{share} and get no gradient: {remedy}"


def _drops(cap: Cap) -> bool:
    return not cap.has_gradient(torch.tensor([1.0, 1.0, 1e30])).all()


def _suggest_uncapping(config: Config, term: str) -> str:
    helpful = []
    for name, value in _remedies(config, "clipped").items():
        section = config.objective.model_copy(update={name: value})
        try:
            plan = plan_of(config.model_copy(update={"objective": section}))
        except UserError:  # conflicts with the run's other settings
            continue
        if any(t.name == term and not _drops(t.cap) for t in plan.scored):
            helpful.append(f"objective.{name}={value}")
    other = "give the term another cap in its method's file, such as scale, which keeps the direction"
    return f"--set {', or '.join(helpful)}" if helpful else other


def _remedies(config: Config, cause: str) -> dict[str, Any]:
    return dict(config.objective.remedies.get(cause, {}))


def _check_rewards(watched: Watched) -> Iterator[Due]:
    judged = [row for row in watched.rows if row.get("outcome") is not None]
    zero = list(takewhile(lambda row: row["outcome"] == 0, reversed(judged)))
    before = [row["outcome"] for row in judged[: len(judged) - len(zero)]]
    counts = _verdict_counts(zero)
    total = sum(counts.values())
    if len(zero) < ZERO_STEPS or total < ZERO_VERDICTS:
        return
    odd = ", ".join(f"{count} {status}" for status, count in counts.items() if count and status != "ok")
    issue = f"none of {total} final answers in {len(zero)} steps was right" + (f" ({odd})" if odd else "")
    if before:
        way = "lower optim.lr, look at the clipped shares, and go back to an earlier checkpoint"
        yield "no longer right", f"{issue}, and up to {max(before):.0%} were before: {way}"
    else:
        way = "read some in rollouts/; does the model solve FULL (smopd eval --views full), and do right"
        way += " answers verify (smopd data check)? else train on easier examples"
        way = "; ".join([*(advice for _, advice in _check_clipping(watched, ZERO_STEPS, PARTLY)), way])
        yield "never right", f"{issue}: {way}"


def _check_verifier(watched: Watched) -> Iterator[Due]:
    counts = _verdict_counts(watched.rows[:2])
    total = sum(counts.values())
    if total >= FAILED_VERDICTS and total == sum(counts[status] for status in FAILED):
        statuses = ", ".join(f"{counts[status]} {status}" for status in FAILED if counts[status])
        way = "no reply counts as right, whatever it says; mend the verifier and start again"
        yield "verifier fails", f"the verifier failed on all of the first {total} replies ({statuses}): {way}"


def _check_shrinking(watched: Watched) -> Iterator[Due]:
    for term, first, last in watched.ends("reply_tokens"):
        if first >= LEAST_TOKENS and last < SHRUNK * first:
            issue = f"replies of the term {term} fell from {first:.0f} to {last:.1f} tokens"
            way = "read the last ones in rollouts/; if they say nothing, lower optim.lr or raise"
            yield f"short/{term}", f"{issue}: {way} teacher.decay and start again"


def _check_token_limit(watched: Watched) -> Iterator[Due]:
    rows = watched.rows[-WINDOW:]
    long, ended = (sum(row.get(f"stop/{stop}") or 0 for row in rows) for stop in ("length", "end"))
    if len(rows) == WINDOW and long and long >= AT_LIMIT * (long + ended):
        limits = watched.config.rollout
        issue = f"{long / (long + ended):.0%} of the last {long + ended} replies were cut by the token limit"
        way = f"raise rollout.middle_tokens ({limits.middle_tokens}) and rollout.answer_tokens"
        yield "cut", f"{issue}: {way} ({limits.answer_tokens}); if they run in circles, lower optim.lr"


def _check_loops(watched: Watched) -> Iterator[Due]:
    rows = watched.rows[-WINDOW:]
    share = fmean([row.get("looping") or 0.0 for row in rows]) if len(rows) == WINDOW else 0.0
    if share >= LOOPING:
        issue = f"{share:.0%} of the replies of the last {WINDOW} steps say the same over and over"
        way = "lower optim.lr and go back to an earlier checkpoint; if the model does so untrained, lower"
        yield "loops", f"{issue}: {way} rollout.temperature"


def _check_entropy(watched: Watched) -> Iterator[Due]:
    for term, first, last in watched.ends("entropy"):
        issue = f"the student's entropy in the term {term} went from {first:.3g} to {last:.3g} nats"
        if last < NO_ENTROPY and last < FADED * first:
            way = "it samples one and the same reply: lower optim.lr or stop earlier"
            yield f"certain/{term}", f"{issue}: {way} (train.eval_every shows when)"
        if last > MUCH_ENTROPY and last > GREW * first:
            way = "it is losing its language: lower optim.lr or optim.grad_clip"
            yield f"uncertain/{term}", f"{issue}: {way}, and go back to an earlier checkpoint"


def _check_staleness(watched: Watched) -> Iterator[Due]:
    limit = watched.config.engine.gap_warning
    stale = (row for row in watched.rows if row.get("rollout/stale"))
    last = [row for row in stale if row.get("rollout/logp_gap") is not None][-WINDOW:]
    gap = fmean([row["rollout/logp_gap"] for row in last]) if len(last) == WINDOW else 0.0
    if gap > limit:
        oldest = max(row["rollout/stale"] for row in last)
        issue = f"conversations up to {oldest} updates old are {gap:.3g} nats a token away from the student"
        yield "stale", f"{issue} (engine.gap_warning {limit:.3g}): lower rollout.ahead or optim.lr"


def _check_full(watched: Watched) -> Iterator[Due]:
    helpful = [f"objective.{name}" for name in _remedies(watched.config, "FULL")]
    way = f"give the whole task more weight ({', '.join(helpful)}), " if helpful else ""
    way += "lower optim.lr, or take an earlier checkpoint"
    values = [row["value"] for row in watched.evaluations if row["metric"] == "full"]
    if values and _fell(max(values), watched.examples, values[-1], watched.examples, ERRORS):
        yield "FULL", f"FULL fell from {max(values):.0%} to {values[-1]:.0%} of {watched.examples}: {way}"
        return
    judged = [row for row in watched.rows if row.get("outcome/full") is not None]
    branch = [(row["outcome/full"], row.get("full_branch") or 0) for row in judged]
    (first, n), (last, m) = _pool_first_verdicts(branch), _pool_first_verdicts(branch[::-1])
    if n and m and n + m <= sum(count for _, count in branch) and _fell(first, n, last, m, BRANCH_ERRORS):
        yield "FULL", f"answers to the whole task fell from {first:.0%} to {last:.0%} right: {way}"


def _pool_first_verdicts(rows: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Accuracy and number of the first verdicts, at least BRANCH_VERDICTS; (0, 0) if there are too few."""
    right = total = 0.0
    for share, count in rows:
        right, total = right + share * count, total + count
        if total >= BRANCH_VERDICTS:
            return right / total, int(total)
    return 0.0, 0


def _fell(before: float, n: int, after: float, m: int, errors: float) -> bool:
    """Whether accuracy (of n, then m answers) fell by more than FALL and by `errors` standard errors."""
    if not (n and m):
        return False
    return before - after > max(FALL, errors * sqrt(before * (1 - before) / n + after * (1 - after) / m))


def _verdict_counts(rows: Sequence[Row]) -> dict[str, int]:
    return {s: sum(row.get(f"verdict/{s}") or 0 for row in rows) for s in STATUSES}


GUARDS: tuple[Callable[[Watched], Iterator[Due]], ...] = (
    _check_clipping, _check_rewards, _check_verifier, _check_shrinking, _check_token_limit, _check_loops,
    _check_entropy, _check_staleness, _check_full,
)  # fmt: skip

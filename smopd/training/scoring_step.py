"""From played conversations to per-rollout losses: the student pass, the teacher pass, the objective.

One call scores a micro-batch of rollouts. A loss depends on its own rollout only, so the batch may be cut anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from peft import PeftModel

from smopd.chat import Renderer, clean_context, full_context
from smopd.config import Objective
from smopd.evaluation.verifiers import Verdict
from smopd.objective import RolloutLoss, keep_mask, rollout_loss
from smopd.rollout import Conversation
from smopd.scoring import divergence, passes, plain
from smopd.scoring.passes import body_and_head, reply_tokens
from smopd.scoring.plain import Scored
from smopd.scoring.stats import Kind, TokenStats
from smopd.training.adapters import as_teacher

Part = Literal["middle", "answer", "full"]


@dataclass(frozen=True)
class Rollout:
    """What one example gave in one step. `sharded` is None where an exclusive FULL branch took its place."""

    sharded: Conversation | None
    full: Conversation | None
    verdict: Verdict | None  # of the answer turn


@dataclass(frozen=True)
class ScoredTurn:
    """One reply with its statistics, and what its engine said of its tokens (empty if it said nothing)."""

    part: Part
    stats: TokenStats
    engine_logp: torch.Tensor

    def gap(self) -> torch.Tensor:
        """|log-probability when sampled - log-probability in the training pass|, a token each: zero if on-policy is meant."""
        return (self.engine_logp - self.stats.student_logp).abs() if len(self.engine_logp) else self.engine_logp

    def importance(self, cap: float) -> torch.Tensor:
        """Truncated importance weights that turn an expectation over the engine's draws into one over the student's."""
        if not len(self.engine_logp):
            return torch.ones_like(self.stats.student_logp)
        return (self.stats.student_logp - self.engine_logp).exp().clamp_max(cap)


@dataclass(frozen=True)
class ScoringPath:
    """How hidden states and divergences are computed; the result does not depend on it.

    `head` makes the head's weight whole; `always` makes the passes even where there is no reply, as sharded weights want it.
    """

    reply_hidden: Callable[..., torch.Tensor]
    token_divergence: Callable[..., TokenStats]
    head: Callable[[torch.Tensor], torch.Tensor] = lambda weight: weight
    always: bool = False


FAST = ScoringPath(passes.reply_hidden, divergence.token_divergence)
PLAIN = ScoringPath(plain.reply_hidden, plain.token_divergence)


def _kind(beta: float) -> Kind:
    """GKD's convention: beta 0 is forward KL, 1 is reverse KL, between them the generalised Jensen-Shannon divergence."""
    return "fkl" if beta == 0 else "rkl" if beta == 1 else "gjs"


@dataclass(frozen=True)
class _Reply:
    """One reply to score: the student's sequence (dirty context) and the teacher's (clean context)."""

    part: Part
    student: Scored
    teacher: Scored
    logps: tuple[float, ...]


def _replies(rollout: Rollout, renderer: Renderer) -> list[_Reply]:
    """Every non-empty reply, the middle ones first."""
    replies: list[_Reply] = []
    if rollout.sharded:
        example = rollout.sharded.example
        for number, turn in enumerate(rollout.sharded.turns):
            part: Part = "answer" if number == len(example.shards) - 1 else "middle"
            clean = clean_context(renderer, example, number)
            replies.append(_Reply(part, (turn.context, turn.reply), (clean, turn.reply), turn.logps))
    if rollout.full:
        turn = rollout.full.turns[0]
        clean = full_context(renderer, rollout.full.example)
        replies.append(_Reply("full", (turn.context, turn.reply), (clean, turn.reply), turn.logps))
    return [r for r in replies if r.student[1]]


def score(
    model: PeftModel,
    renderer: Renderer,
    rollouts: list[Rollout],
    objective: Objective,
    keep: float,
    row_tokens: int = 2048,
    path: ScoringPath = FAST,
) -> tuple[list[RolloutLoss], list[list[ScoredTurn]]]:
    """Losses (with gradient to the student) and token statistics of a micro-batch."""
    body, weight = body_and_head(model)
    head = path.head(weight)
    replies = [_replies(rollout, renderer) for rollout in rollouts]
    flat = [reply for group in replies for reply in group]
    stats = _statistics(model, body, head, flat, objective, keep, row_tokens, path)
    losses, turns = [], []
    for rollout, group in zip(rollouts, replies, strict=True):
        own = [
            ScoredTurn(reply.part, found, found.student_logp.new_tensor(reply.logps))
            for reply, found in zip(group, stats, strict=False)
        ]
        del stats[: len(own)]
        of_part = {part: [t.stats for t in own if t.part == part] for part in ("middle", "answer", "full")}
        losses.append(
            rollout_loss(
                of_part["middle"],
                next(iter(of_part["answer"]), None),
                next(iter(of_part["full"]), None),
                correct=bool(rollout.verdict and rollout.verdict.correct),
                keep=keep,
                eta=objective.eta,
                clip=_position_clip(objective),
                eps=objective.eps,
                interpolation=objective.quantile,
                importance=[turn.importance(objective.importance_cap) for turn in own] if objective.importance_cap else None,
            )
        )
        turns.append(own)
    return losses, turns


def _position_clip(objective: Objective) -> float:
    return objective.clip if objective.clip_level == "position" else float("inf")


def _statistics(
    model: PeftModel,
    body: torch.nn.Module,
    head: torch.Tensor,
    flat: list[_Reply],
    objective: Objective,
    keep: float,
    row_tokens: int,
    path: ScoringPath,
) -> list[TokenStats]:
    """One TokenStats a reply, in order: two model passes over all of them, one divergence call for each kind of loss."""
    if not flat and not path.always:
        return []
    device = head.device
    with as_teacher(model):
        teacher_Nd = path.reply_hidden(body, [reply.teacher for reply in flat], device, row_tokens)
    student_Nd = path.reply_hidden(body, [reply.student for reply in flat], device, row_tokens)
    if not flat:
        return []
    tokens_N = reply_tokens([reply.student for reply in flat], device)
    lengths = [len(reply.student[1]) for reply in flat]
    pieces = zip(student_Nd.split(lengths), teacher_Nd.split(lengths), tokens_N.split(lengths), strict=True)
    rows = list(pieces)
    result: list[TokenStats | None] = [None] * len(flat)
    clip = _position_clip(objective)

    def unclipped(reply: TokenStats) -> torch.Tensor:
        return reply.divergence <= clip

    def kept(reply: TokenStats) -> torch.Tensor:
        return unclipped(reply) & keep_mask(reply.entropy, keep, objective.quantile)

    for beta, parts, needed in ((objective.beta_mid, ("middle",), kept), (objective.beta_final, ("answer", "full"), unclipped)):
        chosen = [i for i, reply in enumerate(flat) if reply.part in parts]
        if chosen:
            student, teacher, tokens = (torch.cat([rows[i][k] for i in chosen]) for k in range(3))
            own = [lengths[i] for i in chosen]
            joined = path.token_divergence(
                student,
                teacher,
                head,
                tokens,
                kind=_kind(beta),
                beta=beta,
                vocab_clip=objective.clip if objective.clip_level == "vocab" else None,
                lengths=own,
                needed=needed,
            )
            for i, stats in zip(chosen, joined.split(own), strict=True):
                result[i] = stats
    return [stats for stats in result if stats is not None]

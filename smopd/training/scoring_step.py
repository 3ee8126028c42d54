"""From played conversations to per-rollout losses: the student pass, the teacher pass, the objective.

One call scores a micro-batch of rollouts. A loss depends on its own rollout only, so the batch may be cut
anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from peft import PeftModel

from smopd.chat import Renderer, clean_context, full_context
from smopd.config import Objective
from smopd.models.adapters import as_teacher
from smopd.objective import RolloutLoss, rollout_loss, select
from smopd.rollout import Conversation
from smopd.scoring import divergence, passes, plain
from smopd.scoring.passes import body_and_head, reply_tokens
from smopd.scoring.plain import Scored
from smopd.scoring.stats import Kind, TokenStats
from smopd.seeds import derive
from smopd.verify.verifiers import Verdict

Part = Literal["middle", "answer", "full"]
Draw = tuple[int | str, ...]  # what random masks derive from: the run's seed and the step


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
    turn: int  # from 0
    tokens: torch.Tensor
    stats: TokenStats
    engine_logp: torch.Tensor

    def gap(self) -> torch.Tensor:
        """|log-probability when sampled - log-probability in the training pass|, a token each: zero if
        on-policy is meant.
        """
        return (
            (self.engine_logp - self.stats.student_logp).abs() if len(self.engine_logp) else self.engine_logp
        )

    def importance(self, cap: float) -> torch.Tensor:
        """Truncated importance weights that turn an expectation over the engine's draws into one over the
        student's.
        """
        if not len(self.engine_logp):
            return torch.ones_like(self.stats.student_logp)
        return (self.stats.student_logp - self.engine_logp).exp().clamp_max(cap)


@dataclass(frozen=True)
class ScoringPath:
    """How hidden states and divergences are computed; the result does not depend on it.

    `head` makes the head's weight whole; `always` makes the passes even where there is no reply, as sharded
    weights want it.
    """

    reply_hidden: Callable[..., torch.Tensor]
    token_divergence: Callable[..., TokenStats]
    head: Callable[[torch.Tensor], torch.Tensor] = lambda weight: weight
    always: bool = False


FAST = ScoringPath(passes.reply_hidden, divergence.token_divergence)
PLAIN = ScoringPath(plain.reply_hidden, plain.token_divergence)


def _kind(beta: float) -> Kind:
    """GKD's convention: beta 0 is forward KL, 1 is reverse KL, between them the generalised Jensen-Shannon
    divergence.
    """
    return "fkl" if beta == 0 else "rkl" if beta == 1 else "gjs"


@dataclass(frozen=True)
class _Reply:
    """One reply to score: the student's sequence (dirty context) and the teacher's (clean context)."""

    part: Part
    turn: int
    student: Scored
    teacher: Scored
    logps: tuple[float, ...]
    noise: torch.Tensor  # ranks the tokens of a random mask


def _noise(count: int, draw: Draw, example: str, turn: int) -> torch.Tensor:
    """A number a token, the same however the work is cut and wherever it is done."""
    return torch.rand(
        count,
        generator=torch.Generator().manual_seed(derive(*draw, "mask", example, turn)),
        dtype=torch.float64,
    )


def _replies(rollout: Rollout, renderer: Renderer, draw: Draw) -> list[_Reply]:
    """Every non-empty reply, the middle ones first."""
    replies: list[_Reply] = []
    if rollout.sharded:
        example = rollout.sharded.example
        for number, turn in enumerate(rollout.sharded.turns):
            part: Part = "answer" if number == len(example.shards) - 1 else "middle"
            clean = clean_context(renderer, example, number)
            noise = _noise(len(turn.reply), draw, example.id, number)
            replies.append(
                _Reply(part, number, (turn.context, turn.reply), (clean, turn.reply), turn.logps, noise)
            )
    if rollout.full:
        turn = rollout.full.turns[0]
        clean = full_context(renderer, rollout.full.example)
        replies.append(
            _Reply("full", 0, (turn.context, turn.reply), (clean, turn.reply), turn.logps, torch.zeros(0))
        )
    return [r for r in replies if r.student[1]]


def score(
    model: PeftModel,
    renderer: Renderer,
    rollouts: list[Rollout],
    objective: Objective,
    keep: float,
    row_tokens: int = 2048,
    path: ScoringPath = FAST,
    draw: Draw = (),
) -> tuple[list[RolloutLoss], list[list[ScoredTurn]]]:
    """Losses (with gradient to the student) and token statistics of a micro-batch."""
    body, weight = body_and_head(model)
    head = path.head(weight)
    replies = [_replies(rollout, renderer, draw) for rollout in rollouts]
    flat = [reply for group in replies for reply in group]
    stats = _statistics(model, body, head, flat, objective, keep, row_tokens, path)
    losses, turns = [], []
    for rollout, group in zip(rollouts, replies, strict=True):
        own = [
            ScoredTurn(
                reply.part,
                reply.turn,
                torch.tensor(reply.student[1]),
                found,
                found.student_logp.new_tensor(reply.logps),
            )
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
                clip=position_clip(objective),
                eps=objective.eps,
                interpolation=objective.quantile,
                ranking=objective.ranking,
                noise=[reply.noise for reply in group if reply.part == "middle"],
                denominator=objective.denominator,
                clip_mode=objective.clip_mode,
                importance=[turn.importance(objective.importance_cap) for turn in own]
                if objective.importance_cap
                else None,
            )
        )
        turns.append(own)
    return losses, turns


def position_clip(objective: Objective) -> float:
    """The cap of a whole position; infinite where the vocabulary's terms are capped instead."""
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
    """One TokenStats a reply, in order: two model passes over all of them, one divergence call for each kind
    of loss.
    """
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
    clip = (
        position_clip(objective) if objective.clip_mode == "hard" else float("inf")
    )  # above it there is no gradient
    for beta, parts in ((objective.beta_mid, ("middle",)), (objective.beta_final, ("answer", "full"))):
        chosen = [i for i, reply in enumerate(flat) if reply.part in parts]
        if chosen:

            def needed(
                reply: TokenStats, number: int, of: list[int] = chosen, middle: bool = "middle" in parts
            ) -> torch.Tensor:
                moves = reply.divergence <= clip
                if not middle:
                    return moves
                return moves & select(
                    reply, keep, objective.ranking, objective.quantile, flat[of[number]].noise
                )

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

"""A step's row of metrics. Ratios are over the whole step, not averages of micro-batches."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from smopd.objective import Moment, Plan, RolloutLoss, TermLoss, uniform
from smopd.rollout import Reply, Rollout
from smopd.scoring import TokenStats
from smopd.verify.verdict import STATUSES


def step_metrics(
    rollouts: Sequence[Rollout], losses: Sequence[RolloutLoss], plan: Plan, moment: Moment
) -> dict[str, Any]:
    row: dict[str, Any] = {"loss": _mean([loss.total.item() for loss in losses])}
    for term in plan.terms:
        parts = [loss.terms[term.name] for loss in losses if term.name in loss.terms]
        replies = [reply for r in rollouts for reply in term.replies(r.replies(), moment)]
        over, kept, _ = _counts(parts)
        stats = [s for part in parts for s in part.stats]
        row |= {
            f"loss/{term.name}": _mean([part.value.item() for part in parts]),
            f"clipped/{term.name}": over / kept if kept else None,
            f"entropy/{term.name}": _token_mean([s.entropy for s in stats]),
            f"divergence/{term.name}": _token_mean([s.divergence for s in stats]),
            f"reply_tokens/{term.name}": _mean([len(reply.tokens) for reply in replies]),
        }
    selecting = [loss.terms[t.name] for t in plan.scored if t.selects for loss in losses]
    weighted = [loss.terms[t.name] for t in plan.scored if t.turns is not uniform for loss in losses]
    _, kept, tokens = _counts(selecting)
    verdicts = [r.verdict for r in rollouts if r.verdict]
    statuses = Counter(verdict.status for verdict in verdicts)
    gaps = [_gap(reply, stats) for loss in losses for reply, stats in loss.scored if reply.engine_logps]
    played = [conversation for r in rollouts for conversation in r.conversations]
    turns, views = [turn for c in played for turn in c.turns], Counter(c.view for c in played)
    stops = Counter(str(turn.stop) for turn in turns)
    for term in plan.scored:
        row |= term.logged(moment)
    if loops := sum(map(_loops, (turn.reply for turn in turns))):
        row["looping"] = loops / len(turns)
    for play in (play for play in plan.plays[1:] if play.verify):
        branch = [v for r in rollouts for c, v in zip(r.conversations, r.verdicts, strict=True)
                  if v and c.view == play.view]  # fmt: skip
        row[f"outcome/{play.view}"] = _mean([float(verdict.correct) for verdict in branch])
    return row | {
        "kept": kept / tokens if tokens else None,
        "delta": _mean([d for part in weighted for d in part.deltas.tolist()]),
        "weight": _mean([w for part in weighted for w in part.turn_weights.tolist()]),
        "outcome": _mean([float(verdict.correct) for verdict in verdicts]),
        "eligible_turns": sum(len(part.deltas) for part in weighted),
        **{f"{play.view}_branch": views[play.view] for play in plan.plays[1:]},
        "rollout/logp_gap": _token_mean(gaps),
        "rollout/logp_gap_max": torch.cat(gaps).max().item() if gaps else None,
        "stop/end": stops["end"],
        "stop/length": stops["length"],
        **{f"verdict/{status}": statuses[status] for status in STATUSES},
        "tokens/sampled": sum(len(turn.reply) for turn in turns),
        "tokens/context": sum(len(turn.context) for turn in turns),
    }


LONG = 24  # tokens: a shorter reply never counts as a loop


def _loops(reply: Sequence[int]) -> bool:
    """Whether more than half of a reply's 4-grams are repetitions."""
    runs = [tuple(reply[i : i + 4]) for i in range(len(reply) - 3)]
    return len(reply) >= LONG and len(set(runs)) < len(runs) / 2


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _token_mean(columns: Sequence[torch.Tensor]) -> float | None:
    return torch.cat(list(columns)).mean().item() if columns else None


def _counts(parts: Sequence[TermLoss]) -> tuple[int, int, int]:
    """Count the tokens that are over the cap and carry loss, those that carry loss, and all."""
    masks = [pair for part in parts for pair in zip(part.over, part.kept(), strict=True)]
    over = sum(int((capped & mask).sum()) for capped, mask in masks)
    return over, sum(int(mask.sum()) for _, mask in masks), sum(len(mask) for _, mask in masks)


def _gap(reply: Reply, stats: TokenStats) -> torch.Tensor:
    """|log-probability when sampled - in the training pass| per token: zero when on-policy."""
    return (stats.student_logp.new_tensor(reply.engine_logps) - stats.student_logp).abs()

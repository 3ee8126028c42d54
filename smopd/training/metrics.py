"""One row of metrics.jsonl from what a step did. Ratios are over the whole step, not averages of
micro-batches.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from smopd.objective import RolloutLoss
from smopd.rollout import Turn
from smopd.training.scoring_step import Rollout, ScoredTurn

PARTS = ("middle", "answer", "full")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _turns(rollouts: Sequence[Rollout]) -> dict[str, list[Turn]]:
    sharded = [r.sharded for r in rollouts if r.sharded]
    return {
        "middle": [turn for c in sharded for turn in c.turns[:-1]],
        "answer": [c.turns[-1] for c in sharded],
        "full": [r.full.turns[0] for r in rollouts if r.full],
    }


def step_metrics(
    rollouts: Sequence[Rollout],
    losses: Sequence[RolloutLoss],
    scored: Sequence[Sequence[ScoredTurn]],
    keep: float,
) -> dict[str, Any]:
    """Losses by part, clipped and kept fractions, entropies, deltas, weights, lengths, stop reasons,
    outcomes.
    """
    row: dict[str, Any] = {"loss": _mean([loss.total.item() for loss in losses])}
    turns = _turns(rollouts)
    stats = [turn for group in scored for turn in group]
    verdicts = [r.verdict for r in rollouts if r.verdict]
    for part in PARTS:
        row[f"loss/{part}"] = _mean([getattr(loss, part).item() for loss in losses])
        over, of = (sum(loss.clipped[part][k] for loss in losses) for k in (0, 1))
        row[f"clipped/{part}"] = over / of if of else None
        own = [t.stats for t in stats if t.part == part]
        row[f"entropy/{part}"] = torch.cat([s.entropy for s in own]).mean().item() if own else None
        row[f"divergence/{part}"] = (
            torch.cat([s.divergence.detach() for s in own]).mean().item() if own else None
        )
        row[f"reply_tokens/{part}"] = _mean([len(t.reply) for t in turns[part]])
    gaps = torch.cat([turn.gap() for turn in stats]) if stats else torch.zeros(0)
    middle = sum(loss.middle_tokens for loss in losses)
    stops = Counter(str(t.stop) for part in PARTS for t in turns[part])
    statuses = Counter(v.status for v in verdicts)
    return row | {
        "keep": keep,
        "kept": sum(loss.kept for loss in losses) / middle if middle else None,
        "delta": _mean([d for loss in losses for d in loss.deltas.tolist()]),
        "weight": _mean([w for loss in losses for w in loss.weights.tolist()]),
        "outcome": _mean([float(v.correct) for v in verdicts]),
        "eligible_turns": sum(len(loss.deltas) for loss in losses),
        "full_branch": len(turns["full"]),
        "rollout/logp_gap": gaps.mean().item() if len(gaps) else None,
        "rollout/logp_gap_max": gaps.max().item() if len(gaps) else None,
        "stop/end": stops["end"],
        "stop/length": stops["length"],
        **{f"verdict/{status}": statuses[status] for status in ("ok", "no_answer", "timeout", "error")},
        "tokens/sampled": sum(len(t.reply) for part in PARTS for t in turns[part]),
        "tokens/context": sum(len(t.context) for part in PARTS for t in turns[part]),
    }

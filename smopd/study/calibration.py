"""Does low student entropy mean that the clean teacher agrees? Answered from the token log of a run
(smopd/runs/tokens.py).

The tokens are those of the middle replies, as sampled. The teacher *agrees* with a token if it gives it at
least half the probability the student gives it. The reliability diagram sets the student's probability of the
sampled token against the teacher's; AUROC is the chance that, of one token the teacher disagrees with and one
it agrees with, the first has the higher entropy (0.5: entropy says nothing; below: it misleads). Its interval
draws whole rollouts, since tokens of one are not independent. It leaves out any claim about truth: the
teacher is a copy of the student that sees a clean context.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from smopd.errors import UserError
from smopd.runs import Run
from smopd.runs.tokens import read

AGREES = np.log(0.5)  # log t - log s, at least
BINS = 10
DRAWS = 200

Tokens = dict[str, np.ndarray]


def load_tokens(run: Path, term: str | None = None) -> Tokens:
    """Every logged token of one term, with the step and a number for its rollout.

    By default the first term that chooses among its tokens, or the first of all.
    """
    files = Run(run).token_files
    if not files:
        raise UserError(f"{run}: has no token log; train it with --set train.save_tokens=true")
    columns: dict[str, list[np.ndarray]] = {}
    rollouts = 0
    for path in files:
        logged = read(path, "numpy")
        wanted = term or [*logged.selecting, *logged.terms][0]
        if wanted not in logged.terms:
            raise UserError(f"{path}: has no term {wanted!r}; its terms are {', '.join(logged.terms)}")
        values = dict(logged.values)
        chosen = values["part"] == logged.terms.index(wanted)
        values["rollout"] = values["rollout"].astype(np.int64) + rollouts
        step = int(path.name.removeprefix("step-").removesuffix(".safetensors"))
        values["step"] = np.full(len(chosen), step)
        rollouts += len(logged.ids)
        for name, column in values.items():
            columns.setdefault(name, []).append(column[chosen])
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def calibration(tokens: Tokens) -> dict[str, Any] | None:
    """The diagram's bins, AUROC with its 95% interval, calibration error, kept against dropped tokens."""
    entropy = tokens["entropy"].astype(float)
    count = len(entropy)
    if not count:
        return None
    student, teacher = (
        np.exp(tokens["student_logp"].astype(float)),
        np.exp(tokens["teacher_logp"].astype(float)),
    )
    agrees = tokens["teacher_logp"].astype(float) - tokens["student_logp"] >= AGREES
    divergence, kept = tokens["divergence"].astype(float), tokens["kept"].astype(bool)
    area, low, high = auroc_interval(entropy, ~agrees, tokens["rollout"])
    bins = []
    place = np.minimum((student * BINS).astype(int), BINS - 1)
    for number in range(BINS):
        own = place == number
        if own.any():
            means = {
                "student": student[own].mean(),
                "teacher": teacher[own].mean(),
                "agreement": agrees[own].mean(),
            }
            bins.append(
                {
                    "low": number / BINS,
                    "high": (number + 1) / BINS,
                    "count": int(own.sum()),
                    **_rounded(means),
                }
            )
    edges = np.unique(np.quantile(entropy, np.linspace(0, 1, BINS + 1)))
    by_entropy = []
    for first, last in pairwise(edges) if len(edges) > 1 else [(edges[0], edges[0])]:
        own = (entropy >= first) & ((entropy < last) | (last == edges[-1]))
        if not own.any():  # edges so near each other that no token lies between them
            continue
        means = {
            "low": first,
            "high": last,
            "agreement": agrees[own].mean(),
            "divergence": divergence[own].mean(),
        }
        by_entropy.append({"count": int(own.sum()), **_rounded(means)})
    masked = ~kept
    found: dict[str, Any] = {
        "tokens": count,
        "rollouts": len(np.unique(tokens["rollout"])),
        "agreement": agrees.mean(),
        "auroc": area,
        "auroc_low": low,
        "auroc_high": high,
        "ece": sum(b["count"] * abs(b["student"] - b["teacher"]) for b in bins) / count,
        "dropped": masked.mean(),
        "agreement_kept": agrees[kept].mean() if kept.any() else None,
        "agreement_dropped": agrees[masked].mean() if masked.any() else None,
        "divergence_kept": divergence[kept].mean() if kept.any() else None,
        "divergence_dropped": divergence[masked].mean() if masked.any() else None,
        "clipped": tokens["clipped"].mean(),
    }
    return _rounded(found) | {"bins": bins, "by_entropy": by_entropy}


def auroc(score: np.ndarray, event: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The chance that an event's score is higher than a non-event's, ties half; NaN without both."""
    values, place = np.unique(score, return_inverse=True)
    weight = np.ones(len(score)) if weight is None else weight
    with_event = np.bincount(place, weight * event, len(values))
    without = np.bincount(place, weight * ~event, len(values))
    pairs = with_event.sum() * without.sum()
    below = np.cumsum(without) - without
    return float((with_event * (below + without / 2)).sum() / pairs) if pairs else float("nan")


def auroc_interval(
    score: np.ndarray, event: np.ndarray, cluster: np.ndarray, seed: int = 0
) -> tuple[float, float, float]:
    """AUROC and its 95% interval by a bootstrap over clusters."""
    _, place = np.unique(cluster, return_inverse=True)
    clusters = int(place.max()) + 1 if len(place) else 0
    draw = np.random.default_rng(seed)
    drawn = [
        auroc(
            score,
            event,
            np.bincount(draw.integers(0, clusters, clusters), minlength=clusters)[place].astype(float),
        )
        for _ in range(DRAWS)
    ]
    found = [area for area in drawn if not np.isnan(area)]
    low, high = np.quantile(found, [0.025, 0.975]) if found else (float("nan"), float("nan"))
    return auroc(score, event), float(low), float(high)


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Six digits, and None for what is no number: results are JSON."""
    return {
        name: value
        if value is None or isinstance(value, int)
        else (float(f"{value:.6g}") if np.isfinite(value) else None)
        for name, value in values.items()
    }

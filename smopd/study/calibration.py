"""Does low student entropy mean that the clean teacher agrees? Answered from a run's token log.

The tokens are the sampled ones of middle replies. The teacher *agrees* with a token if it gives it at least
half the student's probability. The reliability diagram plots the teacher's probability of the sampled token
against the student's. AUROC is the chance that a token the teacher disagrees with has a higher entropy than
one it agrees with (0.5: entropy says nothing; below: it misleads); its bootstrap draws whole rollouts, since
tokens of one are not independent. None of this is about truth: the teacher is a copy of the student with a
clean context.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from smopd.errors import UserError
from smopd.runs import Run
from smopd.runs.tokens import read
from smopd.study.results import round_finite

BINS = 10

Tokens = dict[str, np.ndarray]


def load_tokens(run: Path) -> Tokens:
    """Tokens of the first term that selects among its tokens, else of the first; rollout ids are unique."""
    files = Run(run).token_files
    if not files:
        raise UserError(f"{run}: has no token log; train it with --set train.save_tokens=true")
    logs, rollouts = list[Tokens](), 0
    for path in files:
        logged = read(path, "numpy")
        term, values = [*logged.selecting, *logged.terms][0], logged.values
        chosen = values["part"] == logged.terms.index(term)
        unique = {"rollout": values["rollout"].astype(np.int64) + rollouts}
        rollouts += len(logged.ids)
        logs.append({name: column[chosen] for name, column in (values | unique).items()})
    return {name: np.concatenate([log[name] for log in logs]) for name in logs[0]}


def calibration(tokens: Tokens) -> dict[str, Any] | None:
    """Bins of the diagrams, AUROC with its 95% interval, calibration error, kept against dropped tokens."""
    names = ("entropy", "student_logp", "teacher_logp", "divergence")
    entropy, student_logp, teacher_logp, divergence = (tokens[name].astype(float) for name in names)
    if not len(entropy):
        return None
    student, teacher = np.exp(student_logp), np.exp(teacher_logp)
    agrees, kept = teacher_logp - student_logp >= np.log(0.5), tokens["kept"].astype(bool)
    bins, by_entropy = [], []
    place = np.minimum((student * BINS).astype(int), BINS - 1)
    for number in np.unique(place):
        means = _means(place == number, student=student, teacher=teacher, agreement=agrees)
        bins.append({"low": int(number) / BINS, "high": (int(number) + 1) / BINS, **means})
    edges = np.unique(np.quantile(entropy, np.linspace(0, 1, BINS + 1)))
    for first, last in pairwise(edges) if len(edges) > 1 else [(edges[0], edges[0])]:
        chosen = (entropy >= first) & ((entropy < last) | (last == edges[-1]))
        if chosen.any():  # edges can be so close that no token lies between
            means = _means(chosen, agreement=agrees, divergence=divergence)
            by_entropy.append(_round_values({"low": first, "high": last}) | means)
    rollouts, gaps = tokens["rollout"], (one["count"] * abs(one["student"] - one["teacher"]) for one in bins)
    areas = zip(("auroc", "auroc_low", "auroc_high"), auroc_interval(entropy, ~agrees, rollouts), strict=True)
    shares: dict[str, Any] = {
        "tokens": len(entropy), "rollouts": len(np.unique(rollouts)), "agreement": agrees.mean(),
        **dict(areas), "ece": sum(gaps) / len(entropy), "dropped": (~kept).mean(),
    }  # fmt: skip
    for name, column in (("agreement", agrees), ("divergence", divergence)):
        for part, chosen in (("kept", kept), ("dropped", ~kept)):
            shares[f"{name}_{part}"] = column[chosen].mean() if chosen.any() else None
    shares["clipped"] = tokens["clipped"].mean()
    return _round_values(shares) | {"bins": bins, "by_entropy": by_entropy}


def _means(chosen: np.ndarray, **columns: np.ndarray) -> dict[str, Any]:
    return _round_values({"count": int(chosen.sum()), **{k: v[chosen].mean() for k, v in columns.items()}})


def auroc(score: np.ndarray, event: np.ndarray, weight: np.ndarray | None = None) -> float:
    """The chance that an event's score exceeds a non-event's, ties counting half; NaN without both."""
    values, place = np.unique(score, return_inverse=True)
    weight = np.ones(len(score)) if weight is None else weight
    with_event = np.bincount(place, weight * event, len(values))
    without = np.bincount(place, weight * ~event, len(values))
    pairs = with_event.sum() * without.sum()
    below = np.cumsum(without) - without
    return float((with_event * (below + without / 2)).sum() / pairs) if pairs else float("nan")


def auroc_interval(score: np.ndarray, event: np.ndarray, cluster: np.ndarray) -> tuple[float, float, float]:
    names, place = np.unique(cluster, return_inverse=True)
    size, draw = len(names), np.random.default_rng(0)
    counts = (np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(200))
    drawn = [auroc(score, event, count[place].astype(float)) for count in counts]
    low, high = np.nanquantile(drawn, [0.025, 0.975]) if not np.isnan(drawn).all() else (np.nan, np.nan)
    return auroc(score, event), float(low), float(high)


def _round_values(values: dict[str, Any]) -> dict[str, Any]:
    return {k: value if isinstance(value, int) else round_finite(value, 6) for k, value in values.items()}

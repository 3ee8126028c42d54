"""Results of studies that were never run, for the tests of what is made from results.

Accuracies, curves and logs are drawn from a fixed generator: the same arguments give the same results.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from smopd.study.results import Cell, Results, Source, encode

PAPER_ARMS = ("baseline", "entropy", "outcome", "combined")
METRICS = ("loss", "outcome", "clipped/middle", "kept", "entropy/middle", "divergence/middle", "grad_norm")


def token_log(rng: np.random.Generator) -> dict[str, Any]:
    """What calibration.py makes of a token log."""
    bins = []
    for i in range(10):
        low, high = i / 10, (i + 1) / 10
        student = low + 0.1 * rng.random()
        ends = {"low": low, "high": high, "count": int(rng.integers(20, 900))}
        bins.append(ends | {"student": student, "teacher": student * 0.9, "agreement": min(1.0, 0.3 + 0.7 * student)})
    edges = np.sort(rng.random(6)) * 3
    groups = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    by = [{"low": a, "high": b, "count": 100, "agreement": 0.95 - 0.2 * a, "divergence": 0.05 * b} for a, b in groups]
    area = 0.62 + 0.1 * rng.random()
    return {
        "bins": bins, "by_entropy": by, "auroc": area, "auroc_low": area - 0.03, "auroc_high": area + 0.03, "ece": 0.07,
        "agreement": 0.9,
    }  # fmt: skip


def gradient_log(rng: np.random.Generator) -> dict[str, Any]:
    """What `smopd study gradients` finds."""
    share = 0.01 + 0.05 * rng.random()
    return {
        "tokens_dropped": 0.2, "divergence_dropped": 0.02 + 0.01 * rng.random(), "norm_kept": 1.0,
        "norm_dropped": share / (1 - share),
        "norm_share_dropped": share, "cosine": float(rng.uniform(-0.2, 0.5)),
    }  # fmt: skip


def make_results(
    arms: Sequence[str] = PAPER_ARMS, models: Sequence[str] = ("qwen3-1.7b",), seeds: Sequence[int] = (42,),
    axes: dict[str, list[Any]] | None = None, views: Sequence[str] = ("full", "sharded"), items: int = 200, runs: int = 1,
    steps: int = 60, metrics: Sequence[str] = METRICS, logs: bool = True, base: bool = True, paper: str = "",
) -> Results:  # fmt: skip
    """A complete study: every arm of every model at every point with every seed."""
    rng = np.random.default_rng(7)

    def cell(model: str, arm: str, point: dict[str, Any], seed: int | None) -> Cell:
        level = {view: 0.78 - 0.11 * i + 0.012 * (list(arms).index(arm) if arm in arms else -8) for i, view in enumerate(views)}
        right = {view: encode(rng.binomial(runs, min(0.97, max(0.05, p)), items).tolist()) for view, p in level.items()}
        source = Source(f"{model}/{arm}/{point}/{seed}", "c", seed, "d", "smopd", "smopd", None)
        curves = {}
        if logs and seed is not None:
            ramp = np.linspace(1, 0.4, steps)
            curves = {name: (ramp * (1 + 0.2 * rng.standard_normal(steps))).tolist() for name in metrics}
            curves[metrics[-1]][3] = None
        tokens, gradients = (token_log(rng), gradient_log(rng)) if logs and seed is not None else (None, None)
        return Cell(model, arm, point, seed, source, right, right, curves, tokens, gradients, 60.0)

    bases = [cell(model, "base", {}, None) for model in models] if base else []
    empty = Results("made-up", "Made up", "", arms[0], list(arms), list(models), axes or {}, list(seeds), list(views), runs,
                    [f"item-{i}" for i in range(items)], "data", paper, [], bases, [])  # fmt: skip
    cells = [cell(model, arm, point, seed) for model in models for point in empty.points() for arm in arms for seed in seeds]
    return Results(**vars(empty) | {"cells": cells})

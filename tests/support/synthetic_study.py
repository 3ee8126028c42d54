"""Results of studies that were never run: arms with known chances, every size and every awkward name a report
has to stand.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smopd.study.results import Cell, CellSource, Results, encode

METRICS = ("loss", "outcome", "clipped/middle", "kept", "entropy/middle", "divergence/middle", "grad_norm")
HOSTILE = [
    '<b>&"x"',
    "a_b % c^d ~ #1 \\textbf{$y$}",
    "näive | `mask` -- ∑中",
    "[0] *star* <script>alert(1)</script>",
]


def digest(*parts: object) -> str:
    """A hash that looks like a real one."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def study(
    chances: Mapping[str, float] | Sequence[str], *, models: Sequence[str] = ("pocket",),
    axes: Mapping[str, list[Any]] | None = None, seeds: Sequence[int] = (1, 2, 3, 4, 5),
    views: Sequence[str] = ("full", "sharded"), items: int = 60, runs: int = 1, spread: float = 0.03,
    missing: Sequence[tuple[str, int]] = (), measured: bool = False, steps: int = 40,
    metrics: Sequence[str] = METRICS,
    base: bool = True, paper: str = "", number: int = 0,
) -> Results:  # fmt: skip
    """A study whose first arm is the reference; `chances` are those of SHARDED, other views are 0.2 better.

    Arms without chances are each a little better than the one before. The same arguments give the same
    results.
    """
    draw = np.random.default_rng(number)
    arms = list(chances)
    if not isinstance(chances, Mapping):
        chances = {arm: 0.5 + 0.012 * i for i, arm in enumerate(chances)}
    results = Results(
        name="synthetic", title="A synthetic study", about="Nothing was trained.", reference=arms[0],
        arms=arms,
        models=list(models), axes=dict(axes or {}), seeds=list(seeds), views=list(views), runs=runs,
        items=[f"item-{i}" for i in range(items)],
        data="pocket:eval:1-60", paper=paper, cells=[], base=[],
        missing=[f"{arm}, seed {seed}" for arm, seed in missing],
    )  # fmt: skip
    hard = draw.normal(0, 0.15, items)

    def right(chance: float) -> dict[str, str]:
        counts = {}
        for view in views:
            p = np.clip(
                chance + (0.0 if view == "sharded" else 0.2) + hard + draw.normal(0, spread), 0.02, 0.98
            )
            counts[view] = encode([int(n) for n in draw.binomial(runs, p)])
        return counts

    def source(folder: str, seed: int | None, trained: bool) -> CellSource:
        code = f"0.1.0 {digest('code')}"
        return CellSource(
            folder,
            digest(folder),
            seed,
            digest("data"),
            code if trained else None,
            code,
            digest(folder, 1) if trained else None,
        )

    for model in models:
        if base:
            results.base.append(
                Cell(model, "base", {}, None, source(f"base/{model}", None, False), r := right(0.3), r)
            )
        for point in results.points():
            for arm, chance in chances.items():
                for seed in seeds:
                    if (arm, seed) in missing:
                        continue
                    folder = "-".join(map(str, ["cells/" + model, arm, *point.values(), seed]))
                    cell = Cell(model, arm, point, seed, source(folder, seed, True), r := right(chance), r)
                    if measured:
                        curves = _curves(draw, steps, metrics)
                        cell = replace(
                            cell,
                            tokens=_tokens(draw),
                            gradients=_gradients(draw),
                            curves=curves,
                            seconds=60.0,
                        )
                    results.cells.append(cell)
    return results


def _tokens(draw: np.random.Generator) -> dict[str, Any]:
    bins = []
    for i in range(10):
        low, count, agreement = i / 10, int(draw.integers(1, 5000)), float(draw.uniform(0, 1))
        teacher = low + float(draw.uniform(0, 0.1))
        bins.append(
            {
                "low": low,
                "high": low + 0.1,
                "count": count,
                "student": low + 0.05,
                "teacher": teacher,
                "agreement": agreement,
            }
        )
    edges = [
        {"low": i / 5, "high": (i + 1) / 5, "count": 100, "agreement": 0.9 - i / 9, "divergence": i / 20}
        for i in range(5)
    ]
    area, ece = float(draw.uniform(0.5, 0.9)), float(draw.uniform(0, 0.2))
    shares = {
        "dropped": 0.2,
        "agreement": 0.81,
        "agreement_kept": 0.8,
        "agreement_dropped": 0.95,
        "clipped": 0.01,
        "ece": ece,
    }
    auroc = {"auroc": area, "auroc_low": area - 0.02, "auroc_high": area + 0.02}
    more = {"divergence_kept": 0.1, "divergence_dropped": None, "bins": bins, "by_entropy": edges}
    return {"tokens": int(draw.integers(9000, 20000)), "rollouts": 40, **shares, **auroc, **more}


def _gradients(draw: np.random.Generator) -> dict[str, Any]:
    return {
        "tokens_dropped": 0.2,
        "divergence_dropped": float(draw.uniform(0, 0.2)),
        "norm_kept": 1.5,
        "norm_dropped": 0.2,
        "norm_share_dropped": float(draw.uniform(0, 0.2)),
        "cosine": float(draw.uniform(-0.2, 0.4)),
    }


def _curves(draw: np.random.Generator, steps: int, metrics: Sequence[str]) -> dict[str, list[float | None]]:
    """A row a step; one step of the last metric has no value, as a step without middle replies has none."""
    shape = np.exp(-np.arange(steps) / 20)
    curves: dict[str, list[float | None]] = {
        name: (shape + draw.normal(0, 0.05, steps)).tolist() for name in metrics
    }
    curves[metrics[-1]][3] = None
    return curves

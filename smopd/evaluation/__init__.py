"""Accuracy: verifiers, sandbox, the views of a task, intervals and paired comparisons.

Names are looked up when they are first asked for: a worker process that only judges a reply must not import torch.
`smopd.evaluation.evaluate` is the module; the function of that name is in there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smopd.evaluation.evaluate import Outcome, judge
    from smopd.evaluation.metrics import summarise
    from smopd.evaluation.own import load_verifiers, verifier
    from smopd.evaluation.statistics import Paired, paired, wilson
    from smopd.evaluation.verdict import Verdict
    from smopd.evaluation.verifiers import use_databases, verify, verify_all

__all__ = [
    "Outcome", "Paired", "Verdict", "judge", "load_verifiers", "paired", "summarise", "use_databases", "verifier", "verify",
    "verify_all", "wilson",
]  # fmt: skip
_HOMES = {
    "evaluate": ("Outcome", "judge"),
    "metrics": ("summarise",),
    "own": ("load_verifiers", "verifier"),
    "statistics": ("Paired", "paired", "wilson"),
    "verdict": ("Verdict",),
    "verifiers": ("use_databases", "verify", "verify_all"),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)

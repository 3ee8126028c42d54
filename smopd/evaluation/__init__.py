"""Accuracy: conversations played in the views of a task, judged, kept in a folder, and counted.

Names are looked up when they are first asked for: a file of verifiers that imports `verifier` from here must
not import torch. `smopd.evaluation.evaluate` is the module; the function of that name is in there.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.evaluation.evaluate import Outcome, judge
    from smopd.evaluation.metrics import summarise
    from smopd.evaluation.statistics import Paired, paired, wilson
    from smopd.verify import Verdict, load_verifiers, use_databases, verifier, verify, verify_all

__all__ = [
    "Outcome", "Paired", "Verdict", "judge", "load_verifiers", "paired", "summarise", "use_databases", "verifier",
    "verify", "verify_all", "wilson",
]  # fmt: skip
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.evaluation.evaluate": ("Outcome", "judge"),
        "smopd.evaluation.metrics": ("summarise",),
        "smopd.evaluation.statistics": ("Paired", "paired", "wilson"),
        "smopd.verify": ("Verdict", "load_verifiers", "use_databases", "verifier", "verify", "verify_all"),
    },
)

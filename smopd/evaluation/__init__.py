"""Accuracy: conversations played in the views of a task, judged, kept in a folder, and counted.

`smopd.evaluation.evaluate` is the module; the function of that name is in there.
"""

from smopd.evaluation.evaluate import Outcome, judge
from smopd.evaluation.metrics import summarise
from smopd.evaluation.statistics import Paired, paired, wilson
from smopd.verify import Verdict, load_verifiers, use_databases, verifier, verify, verify_all

__all__ = [
    "Outcome", "Paired", "Verdict", "judge", "load_verifiers", "paired", "summarise", "use_databases",
    "verifier", "verify", "verify_all", "wilson",
]  # fmt: skip

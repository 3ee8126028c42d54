"""Play conversations in the views of a task; verify, store and summarise them. `smopd.evaluation.evaluate` is
a module, which contains the function of that name.
"""

from smopd.evaluation.evaluate import Outcome, judge
from smopd.evaluation.metrics import summarise
from smopd.evaluation.statistics import Paired, paired, wilson
from smopd.verify import Verdict, load_verifiers, use_databases, verifier, verify, verify_all

__all__ = [
    "Outcome", "Paired", "Verdict", "judge", "load_verifiers", "paired", "summarise", "use_databases",
    "verifier", "verify", "verify_all", "wilson",
]  # fmt: skip

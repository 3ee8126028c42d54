"""Play conversations in the views of a task; verify, store and summarise them. `smopd.evaluation.evaluate` is
a module, which contains the function of that name.
"""

from smopd.evaluation.metrics import summarise
from smopd.verify import Verdict, load_verifiers, verifier, verify, verify_all

__all__ = ["Verdict", "load_verifiers", "summarise", "verifier", "verify", "verify_all"]

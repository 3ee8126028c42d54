"""Verdicts: is a reply's answer right? Tasks with their verifiers, a sandbox, worker processes.

Names are imported when they are first asked for: a worker process imports only what its own jobs need.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.verify.own import load_verifiers, verifier
    from smopd.verify.tasks.database import use_databases
    from smopd.verify.verdict import Verdict
    from smopd.verify.verifiers import verify, verify_all

__all__ = ["Verdict", "load_verifiers", "use_databases", "verifier", "verify", "verify_all"]
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.verify.own": ("load_verifiers", "verifier"),
        "smopd.verify.tasks.database": ("use_databases",),
        "smopd.verify.verdict": ("Verdict",),
        "smopd.verify.verifiers": ("verify", "verify_all"),
    },
)

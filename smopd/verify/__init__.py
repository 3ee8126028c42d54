"""Verdicts: is a reply's answer right? Tasks with their verifiers, a sandbox, worker processes.

Names are imported when they are first asked for: a worker process imports only what its own jobs need.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

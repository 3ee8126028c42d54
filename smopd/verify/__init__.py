"""Judge whether a reply's answer is right: tasks with their verifiers, a sandbox, worker processes.

Names are imported on first use, so that a worker process imports only what its own jobs need.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

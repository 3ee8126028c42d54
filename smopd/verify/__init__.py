"""Verdicts: is a reply's answer right? Verifiers by task, the sandbox for programs, warm processes for what
may hang.

Names are looked up when they are first asked for: a worker process imports only what its own jobs need.
"""

from smopd.lazy import lazy_names

__getattr__ = lazy_names(__name__, __file__)

"""Accuracy: conversations played in the views of a task, judged, kept in a folder, and counted.

`smopd.evaluation.evaluate` is the module; the function of that name is in there.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

"""Models: loading a chat model with its template, and the two adapters that are student and teacher."""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

"""Replies: engines behind one small protocol, and the driver that plays conversations with them."""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

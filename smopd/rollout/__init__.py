"""Replies: engines behind one small protocol, and the driver that plays conversations with them.

Names are looked up when they are first asked for: a method's declaration needs `Play`, not transformers.
"""

from smopd.lazy import lazy_names

__getattr__ = lazy_names(__name__, __file__)

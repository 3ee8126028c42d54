"""Packed passes, row losses and the fused kernel, looked up when first asked for: plans need no torch."""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

"""Plans, their parts, and a rollout's loss, looked up when first used: reading settings needs no torch."""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

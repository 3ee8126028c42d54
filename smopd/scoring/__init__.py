"""Token statistics: packed passes of student and teacher over the same replies, row losses, the fused kernel.
Names are looked up when they are first asked for: a method's declaration needs no torch.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

"""One scalar: plans and their terms, the parts they are made of, and the loss of a rollout. Names are looked
up when they are first asked for: a method's declaration, and with it every config, needs no torch.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

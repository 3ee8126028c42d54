"""Contexts: views of an example through a chat template, to token ids. Names are looked up when first asked
for.
"""

from smopd.lazy import lazy_names

__getattr__ = lazy_names(__name__, __file__)

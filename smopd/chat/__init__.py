"""Contexts: views of an example through a chat template, to token ids. Names are looked up when needed."""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

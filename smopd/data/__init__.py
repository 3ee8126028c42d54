"""Examples: one task in two paired views, read from files or generated."""

from smopd.data.example import Example, save_examples
from smopd.data.reading import load_examples, scorable

__all__ = ["Example", "load_examples", "save_examples", "scorable"]

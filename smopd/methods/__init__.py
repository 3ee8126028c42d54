"""A method is data: a name, what it is, where it comes from, and the settings that make it differ from the
defaults.

Every module of this package declares a list `METHODS`; a new file here is a new entry in the table below.
Nothing in this package computes: the training loop reads the resolved settings and never asks which method
they came from.
"""

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Method:
    """One declared method; `settings` maps dotted config keys (`objective.keep`) to values."""

    name: str
    title: str
    summary: str
    paper: str
    settings: dict[str, Any]


def declared() -> dict[str, Method]:
    """Every method that a module of this package declares, by name."""
    found: dict[str, Method] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for method in import_module(f"{__name__}.{module}").METHODS:
            assert method.name not in found, f"the method {method.name!r} is declared twice"
            found[method.name] = method
    return found


METHODS: dict[str, Method] = declared()

"""A method is a declaration: a name, where it comes from, a typed section of settings, and the plan they
make.

Every module of this package declares a list `METHODS`; a new file here is a new entry in the table below. A
method in a file of your own is named by its path: `--method my_method.py`, or `my_method.py:NAME` where it
declares several. Nothing outside this package knows a method or one of its settings.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from smopd.errors import UserError
from smopd.plugins import load_python
from smopd.settings import Section

if TYPE_CHECKING:
    from smopd.objective.plan import Plan


# Where a method comes from: the SMOPD paper, the systems of its table 1, other systems, what a user would
# pick instead, controls, and candidates of ours.
Group = Literal["paper", "compared", "neighbours", "baselines", "controls", "ours", "yours"]


@dataclass(frozen=True)
class Method:
    """One declared method.

    `section` is the class of its settings, the table [objective] of a config; `plan` makes of one what is
    played and learnt; `settings` maps dotted config keys (`objective.keep`, `teacher.decay`) to the values it
    sets. `formula` is its objective in symbols, `choices` what is ours: what stands in for an input that
    sharded conversations lack, and points its paper leaves open.
    """

    name: str
    title: str
    summary: str
    paper: str
    section: type[Section]
    plan: Callable[[Any], "Plan"]
    settings: dict[str, Any] = field(default_factory=dict)
    group: Group = "yours"
    formula: str = ""
    choices: str = ""


def _declared() -> dict[str, Method]:
    methods: dict[str, Method] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for method in import_module(f"{__name__}.{module}").METHODS:
            assert method.name not in methods, f"the method {method.name!r} is declared twice"
            methods[method.name] = method
    return methods


METHODS: dict[str, Method] = _declared()
DEFAULT = "entropy"  # SMOPD itself
# The paper's own configurations; the first is what it compares the others with.
PAPERS_OWN = [name for name, method in METHODS.items() if method.group == "paper"]


def in_file(name: str) -> Path | None:
    """The file that a method's name points into; None for a method of this package."""
    path, _, _ = name.partition(".py:")
    return Path(name if name.endswith(".py") else f"{path}.py") if ".py" in name else None


def find_method(name: str) -> Method:
    """The method of that name, or in that file; ValueError where there is none."""
    path = in_file(name)
    if path is None:
        if name not in METHODS:
            raise ValueError(f"unknown method {name!r}")
        return METHODS[name]
    try:
        declared = getattr(load_python(path), "METHODS", None)
    except UserError as error:
        raise ValueError(str(error)) from None
    if not isinstance(declared, list) or not declared or not all(isinstance(m, Method) for m in declared):
        raise ValueError(f"{path} declares no METHODS, a list of smopd.methods.Method")
    wanted = name.partition(".py:")[2] or declared[0].name
    if wanted not in [m.name for m in declared]:
        raise ValueError(
            f"{path} has no method {wanted!r}; its methods are {', '.join(m.name for m in declared)}"
        )
    return next(m for m in declared if m.name == wanted)

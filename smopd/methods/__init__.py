"""A method is a declaration: a name, where it comes from, typed settings, and the plan they make.

Every module of this package declares a list `METHODS`; a new file here is a new entry in the table below. A
method in a file of your own is named by its path: `--method my_method.py`, or `my_method.py:NAME` where it
declares several. Modules of this package import from here what declarations are made of; the names of `parts`
and `scoring` are looked up when a plan is made: reading settings needs no torch.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError  # noqa: F401

from smopd import objective as parts
from smopd import scoring  # noqa: F401
from smopd.config_io import check, choices
from smopd.errors import UserError
from smopd.plugins import Unexpected, calling, check_function, describe_value, load_python, making_at, require
from smopd.rollout.play import Peers, Play, Reply  # noqa: F401
from smopd.settings import Section, share_of_steps  # noqa: F401

# Where a method comes from: the SMOPD paper, the systems of its table 1, related systems, baselines,
# controls, and our own candidates.
Group = Literal["paper", "compared", "related", "baselines", "controls", "ours", "yours"]


@dataclass(frozen=True)
class Method:
    """`section` is the class of its settings, the table [objective] of a config; `plan` makes of one what is
    played and learnt; `settings` maps dotted config keys (`objective.keep`, `teacher.decay`) to the values it
    sets. `formula` is its objective in symbols, `choices` what is ours: what stands in for an input that
    sharded conversations lack, and points its paper leaves open.
    """

    name: str
    title: str
    summary: str
    paper: str
    section: type[Section]
    plan: Callable[[Any], "parts.Plan"]
    settings: dict[str, Any] = field(default_factory=dict)
    group: Group = "yours"
    formula: str = ""
    choices: str = ""
    made_at: str = field(default_factory=making_at, init=False, repr=False, compare=False)  # file and line

    def __post_init__(self) -> None:
        for name in ("name", "title", "summary", "paper", "formula", "choices"):
            text = getattr(self, name)
            require(isinstance(text, str), f"a Method's {name}", text, "a text")
        here = f"method '{self.name}': "
        known = isinstance(self.section, type) and issubclass(self.section, Section)
        require(known, f"{here}section", self.section, "a class of settings, a smopd.settings.Section")
        check_function(f"{here}plan", self.plan, "settings")
        keys = isinstance(self.settings, dict) and all(isinstance(key, str) for key in self.settings)
        require(keys, f"{here}settings", self.settings, "a dict of config keys")


def _collect_methods() -> dict[str, Method]:
    methods: dict[str, Method] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for method in import_module(f"{__name__}.{module}").METHODS:
            assert method.name not in methods, f"the method {method.name!r} is declared twice"
            methods[method.name] = method
    return methods


METHODS: dict[str, Method] = _collect_methods()
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
            raise ValueError(f"unknown method {name!r}{choices(name, list(METHODS), 'methods')}")
        return METHODS[name]
    try:
        declared = getattr(load_python(path), "METHODS", None)
    except UserError as error:
        raise ValueError(str(error)) from None
    if not isinstance(declared, list) or not declared or not all(isinstance(m, Method) for m in declared):
        actual = "" if declared is None else f"; METHODS is {describe_value(declared)}"
        raise ValueError(f"{path} declares no METHODS, a list of smopd.methods.Method{actual}")
    names = [m.name for m in declared]
    if twice := [m for k, m in enumerate(declared) if m.name in names[:k]]:
        raise ValueError(f"{twice[0].made_at or path}: a second method with the name {twice[0].name!r}")
    wanted = name.partition(".py:")[2] or names[0]
    if wanted not in names:
        raise ValueError(f"{path} has no method {wanted!r}{choices(wanted, names, 'methods')}")
    method = declared[names.index(wanted)]
    with calling(None, lambda: f"settings of '{method.name}'", method.made_at or str(path)):
        _check_defaults(method.section)
    return method


def _check_defaults(section: type[Section]) -> None:
    """Refuse settings whose defaults are missing, or are not what they are declared to be."""
    if lacking := [key for key, field in section.model_fields.items() if field.is_required()]:
        raise Unexpected(f"{lacking[0]} has no default")
    try:
        values = section().model_dump(warnings=False)
    except ValidationError as error:  # by a validator of the user's
        raise Unexpected(error.errors()[0]["msg"]) from None
    for key, value in values.items():
        if not isinstance(value, (bool, int, float, str, list)):
            raise Unexpected(f"{key} is {describe_value(value)}, expected a text, a number, a bool or a list")
    if problems := check(section, values, ""):
        raise Unexpected("\n".join(problem.removeprefix(": ") for problem in problems))

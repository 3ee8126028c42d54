"""`smopd.variant`: a method with some of its parts replaced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smopd import objective, scoring
from smopd.errors import UserError
from smopd.methods import METHODS, Method, find_method


@dataclass(frozen=True)
class Changed:
    plan: Callable[[Any], "objective.Plan"]
    parts: dict[str, Any]
    terms: tuple[str, ...]  # empty: all of them

    def __call__(self, settings: Any) -> "objective.Plan":
        base_plan = self.plan(settings)
        names = [term.name for term in base_plan.terms]
        if unknown := [name for name in self.terms if name not in names]:
            raise UserError(f"variant: no term {unknown[0]!r}; the method's terms are {', '.join(names)}")
        chosen = self.terms or names
        parts = dict(self.parts)
        if "loss" in parts and not hasattr(parts["loss"], "value"):
            parts["loss"] = scoring.row_loss(parts["loss"])
        terms = tuple(replace(t, **parts) if t.name in chosen else t for t in base_plan.terms)
        return replace(base_plan, terms=terms)


def variant(
    method: str | Method, *, name: str = "", terms: Sequence[str] = (), loss: Any = None, tokens: Any = None,
    cap: Any = None, turns: Any = None, teacher: Any = None,
) -> Method:  # fmt: skip
    """A method with replaced parts: what a token costs (`loss`, a function of its logits), which tokens count
    (`tokens`, a selector), `cap`, `turns`, `teacher` (see docs/extending.md), in all or only some `terms`.
    """
    if isinstance(method, str) and method not in METHODS and not method.endswith(".py"):
        raise UserError(f"variant: unknown method {method!r}; the methods are {', '.join(METHODS)}")
    base = method if isinstance(method, Method) else find_method(method)
    replacements = {"loss": loss, "tokens": tokens, "cap": cap, "turns": turns, "teacher": teacher}
    parts = {key: part for key, part in replacements.items() if part is not None}
    if not parts:
        raise UserError(f"variant: change a part: {', '.join(replacements)}")
    title = f"{base.title}, with your own parts: {', '.join(parts)}"
    plan = Changed(base.plan, parts, tuple(terms))
    variant_name = name or f"{base.name}-variant"
    return Method(variant_name, title, base.summary, base.paper, base.section, plan, dict(base.settings))

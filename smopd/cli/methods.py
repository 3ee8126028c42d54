"""`smopd methods`: the table of all methods, by group; `smopd methods show NAME`: one method in full."""

from typing import Annotated, Any, get_args

import typer

from smopd.cli.options import Arg, Json, verb_with
from smopd.config import load_config, plan_of
from smopd.config_io import describe_fields, flatten
from smopd.errors import UserError
from smopd.methods import DEFAULT, METHODS, Group, Method, find_method
from smopd.printing import output
from smopd.tables import Row, Table

methods_app = typer.Typer(cls=verb_with("show"), help="The methods that --method takes.")
TITLES = {"paper": "This paper", "compared": "Compared in the paper", "related": "Related methods"}
GROUPS = {group: TITLES.get(group, group.capitalize()) for group in get_args(Group)}


@methods_app.command("run")
def methods(as_json: Json = False) -> None:
    """List the methods that --method takes, by group. For one in full: smopd methods show NAME.

    Example: smopd methods
    """
    width, parts = max(map(len, METHODS)), list[Any]()
    for group, title in GROUPS.items():
        listed = [method for method in METHODS.values() if method.group == group]
        rows = [Row(method.name.ljust(width), [method.summary]) for method in listed]
        parts += [Table(title=title, heads=(), rows=rows), ""] if rows else []
    output(as_json, {name: _facts(method) for name, method in METHODS.items()}, *parts)


@methods_app.command("show")
def show_method(
    name: Annotated[str, Arg(help="A method's name, or your own Python file.")], as_json: Json = False
) -> None:
    """Show one method: its objective, parts, settings, cost and paper.

    Examples:
      smopd methods show maigo
      smopd methods show my_method.py
    """
    try:
        method = find_method(name)
    except ValueError as error:
        raise UserError(str(error)) from None
    config = load_config("pocket", method=name)
    parts = plan_of(config).describe()
    values = flatten({"objective": config.objective.model_dump()})
    described = {f"objective.{key}": text for key, _, text in describe_fields(method.section)}
    rows = [(key, values.get(key), text) for key, text in described.items()]
    others = [(key, value) for key, value in method.settings.items() if not key.startswith("objective.")]
    rows += [(key, value, "set by the method") for key, value in others]
    cost, settings = _cost(name), {key: value for key, value, _ in rows}
    facts = {"name": method.name, **_facts(method), "parts": parts, "objective": settings, "cost": cost}
    lines = [f"{method.name}: {method.title}", "", method.summary, "", f"paper: {method.paper}"]
    lines += [f"formula: {method.formula}"] if method.formula else []
    lines += [f"ours: {method.choices}"] if method.choices else []
    lines += ["", "plan:", *(f"  {part}" for part in parts), "", "settings:"]
    lines += [f"  {key} = {value}  ({text})" for key, value, text in rows]
    lines += ["", f"cost of a step beside {DEFAULT}'s, counted for the pocket recipe:"]
    lines += [f"  {what}: {times:.2f} times" for what, times in cost.items()]
    output(as_json, facts, *lines)


def _facts(method: Method) -> dict[str, Any]:
    shown = ("group", "title", "summary", "paper", "formula", "choices", "settings")
    return {key: getattr(method, key) for key in shown}


def _cost(name: str) -> dict[str, float]:
    """Ratios to the default method, as the planner counts them."""
    from smopd.planning.load import find_averages, step_load

    configs = [load_config("pocket", method=method) for method in (name, DEFAULT)]
    of_method, usual = (step_load(config, find_averages(config)) for config in configs)
    return {
        "tokens sampled": of_method.sampled.tokens / usual.sampled.tokens,
        "student tokens": of_method.passes * of_method.student.tokens / usual.student.tokens,
        "teacher tokens": of_method.passes * of_method.teacher.tokens / usual.teacher.tokens,
        "head products": of_method.products / usual.products,
    }

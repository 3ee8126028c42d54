"""Prints docs/methods.md from the declared methods and their plans; `make docs` writes it."""

from dataclasses import fields

from smopd.cli.methods import GROUPS
from smopd.config import load_config, plan_of
from smopd.methods import METHODS, Method
from smopd.objective.plan import Plan, Term, part_name

HEAD = """# Methods

Every method below is one small file in `smopd/methods`: a plan made of shared parts, trained by the same loop on the same kind of rollouts. `--method NAME` takes one, `smopd methods show
NAME` prints its objective, settings and cost, and [extending](extending.md) tells how to write your own. S is the student under the context it saw, T the teacher under its own, y the sampled token, sg
stops the gradient. Unless a method says otherwise the teacher is the student's moving average, its context the *clean* one (the user turns alone for a middle turn, the complete task for the
answer), and its paper's larger or separate teacher is replaced by that.

Each method's whole loss is compared, in value and gradient to 1e-10, with a float64 reference written apart from the parts (tests/methods); what its paper promises of it is a test
there too. Formulas follow the papers; where released code differs, the method says so. None of them has been run at the size of its paper here.

## Parts by method
"""  # noqa: E501


def page() -> str:
    """The whole page."""
    heads = ("method", "plays", "term", "replies", "teacher", "loss", "tokens, turns, cap, mean")
    parts = [HEAD, f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    groups = {group: [m for m in METHODS.values() if m.group == group] for group in GROUPS}
    for method in (method for chosen in groups.values() for method in chosen):
        parts += _rows(method.name, plan_of(load_config("pocket", method=method.name)))
    for group, chosen in groups.items():
        parts += [f"\n## {GROUPS[group]}", *map(_section, chosen)] if chosen else []
    return "\n".join(parts) + "\n"


def _rows(name: str, plan: Plan) -> list[str]:
    plays = ", ".join(part_name(play) for play in plan.plays)
    graded = f"; graded by {part_name(plan.grade)}" if plan.grade else ""
    lines = []
    for number, term in enumerate(plan.scored):
        first = (f"`{name}`", plays + graded) if number == 0 else ("", "")
        teacher = f"{part_name(term.teacher)}, {term.weights}" if term.teacher else "none"
        cells = (*first, term.name, part_name(term.replies), teacher, str(term.loss), _others(term))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _others(term: Term) -> str:
    """The parts that are not a term's defaults."""
    usual = {f.name: f.default for f in fields(term)}
    names = ("tokens", "turns", "cap", "mean_over", "per", "scale", "auxiliary")
    unusual = {name: getattr(term, name) for name in names if getattr(term, name) != usual[name]}
    return ", ".join(f"{name} {part_name(part)}".replace("|", "\\|") for name, part in unusual.items())


def _section(method: Method) -> str:
    lines = [f"\n### {method.name}", f"{method.title}. {method.summary}", f"*{method.paper}.*"]
    lines += [f"`{method.formula}`"] if method.formula else []
    lines += [f"**Ours:** {method.choices}"] if method.choices else []
    return "\n\n".join([*lines, f"```sh\nsmopd train qwen3-1.7b --method {method.name}\n```"])


if __name__ == "__main__":
    print(page(), end="")

"""Prints docs/methods.md from the declared methods, their plans and what their steps cost (the JSON of
`python -m benchmarks methods`); `make docs` writes it.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from wrapping import wrap_markdown

from benchmarks.methods import COSTS
from smopd.cli.methods import GROUPS
from smopd.config import load_config, plan_of
from smopd.methods import DEFAULT, METHODS, Method
from smopd.objective.plan import Plan, Term, part_name

HEAD = """# Methods

Every method below is one small file in `smopd/methods`: a plan made of shared parts, trained by the same loop on the same kind of rollouts. `--method NAME` takes one, `smopd methods show
NAME` prints its objective, settings and cost, and [extending](extending.md) tells how to write your own. S is the student under the context it saw, T the teacher under its own, y the sampled token, sg
stops the gradient. Unless a method says otherwise the teacher is the student's moving average, its context the *clean* one (the user turns alone for a middle turn, the complete task for the
answer), and its paper's larger or separate teacher is replaced by that.

Each method's whole loss is compared, in value and gradient to 1e-10, with a float64 reference written apart from the parts (tests/methods); what its paper promises of it is a test
there too. Formulas follow the papers; where released code differs, the method says so. None of them has been run at the size of its paper here.

A prompt is one drawn example and a group its rollouts: an example that a step draws twice is two prompts, with two groups. Sampling temperature, learning rate and batch are the recipe's for every
method; what its paper trained with stands under its choices. ROSD (arXiv 2605.28014) is left out: its teacher reads a reflection on the failed attempt, which takes a further generation in every step, and
its loss begins at the error that the reflection quotes. A step plays conversations only.

## Parts by method
"""  # noqa: E501

# What each rule was taken from, besides a summary of all the papers.
READ = {
    "eopd": "public code (ckjsuperhh/CacheEOPD: core_algos, dp_actor); the paper's text was not at hand",
    "scope": "the paper, equations 1 to 6, tables 4 and 5",
    "aopd": "the paper, version 3, equations 6 to 10",
    "unisd": "the authors' code (Ahren09/UniSD, unisd_trainer.py); the values from its launcher's defaults",
    "credit": "the paper, section on its set-up, table 3",
    "ogls-sd": "the paper, version 1, equations 4 to 16, algorithm 1, appendix B",
    "ogls-sd-free": "the same, section 5.4",
    "reopold": "the paper, section 4.3 for what is divided by what; no code is public",
    "maigo": "the paper; no code is public",
    "ccopd": "the summary and the abstract",
    "opsd": "the authors' code (siyan-zhao/OPSD, opsd_trainer.py); forward KL and the clip from the summary",
    "sdft": "accounts of the paper, which give its objective as KL(S || T), forks of its code, and TRL",
    "sdpo": "the authors' code (lasgroup/SDPO: sdpo.yaml, core_algos, ray_trainer)",
    "sod": "the paper, equations 6 to 10, and the authors' code (YoungZ365/SOD), whose margin is 0.5",
    "exopd": "the authors' code (RUCBM/G-OPD, dp_actor.py), which samples the log-ratio as an advantage",
    "drkl": "the summary and the abstract",
    "gkd": "TRL 1.16, gkd_trainer.py",
    "opd": "TRL 1.16, iw_opd_trainer.py",
    "tip": "the paper, sections 3, 5 and 6, equations 7 to 9; it clips no entropies",
    "sage-opd": "the summary and the abstract",
    "tcod": "the paper, section 4.2, equations 3 and 4, algorithm 1, section 5.1",
    "pw-opsd": "the authors' code (SaFo-Lab/PW-OPSD, ea_opsd_trainer.py)",
    "rlsta": "the authors' code (Tencent/RLSTA: rlsta_trainer.py, train_grpo.py) and a summary of the paper",
}


COST = """
## What a step costs

`python -m benchmarks methods --json > docs/methods-cost.json`, one thread of {cpu}: a whole training step of the pocket recipe with {examples} examples, the mean of {steps} steps at 60% of a run, the median of {reps}
repetitions. Sampled: reply tokens; contexts: what teachers scored (twice where the whole step is scored once before any of it counts); products: rows multiplied with the head, in the first of the steps; s: CPU
seconds, with one other process on the machine's two cores (the same work came out between 0.8 and 1.14 times). Behind each the ratio to `{default}`. Group methods play every example several times, which is most of their cost; the planner (`smopd plan --set method=NAME`) scales these counts to real models.
"""  # noqa: E501


def page() -> str:
    """The whole page."""
    cost = json.loads((Path(__file__).parents[1] / "docs" / "methods-cost.json").read_text(encoding="utf-8"))
    heads = ("method", "plays", "term", "replies", "teacher", "loss", "tokens, turns, cap, mean")
    parts = [HEAD, f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    groups = {group: [m for m in METHODS.values() if m.group == group] for group in GROUPS}
    for method in (method for chosen in groups.values() for method in chosen):
        parts += _rows(method.name, plan_of(load_config("pocket", method=method.name)))
    parts += _cost_table(cost)
    for group, chosen in groups.items():
        parts += [f"\n## {GROUPS[group]}", *map(_section, chosen)] if chosen else []
    return wrap_markdown("\n".join(parts) + "\n")


def _cost_table(cost: dict[str, Any]) -> list[str]:
    settings = cost["settings"]
    lines = [COST.format(**settings, cpu=cost["machine"]["cpu"], reps=cost["reps"], default=DEFAULT)]
    lines += ["| method | sampled | | contexts | | products | | s | |", "|---" + "|---:" * 8 + "|"]
    for row in cost["results"]:
        cells = [f"`{row['name']}`"]
        for key in COSTS:
            value = f"{row[key]:.2f}" if key == "seconds" else f"{row[key]:,.0f}"
            cells += [value, f"{row['ratios'][key]:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


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
    lines += [f"**Read:** {READ[method.name]}."] if method.name in READ else []
    return "\n\n".join([*lines, f"```sh\nsmopd train qwen3-1.7b --method {method.name}\n```"])


if __name__ == "__main__":
    print(page(), end="")

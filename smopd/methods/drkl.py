"""DRKL (arXiv 2604.00223): reverse KL in two parts, the sampled token against the rest, the rest alone."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    gamma: float = Field(0.5, ge=0, description="weight of the divergence on all other tokens")


def plan(s: Settings) -> "parts.Plan":
    loss = scoring.drkl(s.gamma)
    term = parts.Term("turns", parts.sharded, parts.clean, loss, mean_over="all", per="batch")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="drkl", title="DRKL: diversity-aware reverse KL",
    summary="Reverse KL whose part on the other tokens no longer pushes up the sampled one, with a weight of "
    "its own.",
    paper="DRKL, arXiv 2604.00223", section=Settings, plan=plan, group="related",
    formula="KL([S(y), 1 - S(y)] || [T(y), 1 - T(y)]) + gamma * KL(S without y || T without y), both "
    "renormalised; mean over the step's tokens.",
    choices="The paper is off-policy, y the ground-truth token; here y is the token sampled. gamma 0.5 (the "
    "paper reports 0.5 to 2 as stable).",
)]  # fmt: skip

"""On-policy distillation by the sampled token (Thinking Machines, 2025), and IW-OPD's weights for it."""

from typing import Any

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    iw: float = Field(0.0, ge=0, description="how much more tokens count that come early; IW-OPD: 0.5")
    importance_cap: float = Field(0.0, ge=0, description="cap of training over sampling probability; 0 = off")


def plan(s: Settings) -> "parts.Plan":
    def early(tokens: "parts.Tokens") -> Any:
        size = tokens.log_ratio.abs()
        before = size.cumsum(0) - size
        return 1 + s.iw * (1 - before / size.sum().clamp_min(1e-8))

    weights: list[Any] = [parts.log_ratio]
    weights += [early] if s.iw else []
    weights += [parts.importance(s.importance_cap)] if s.importance_cap else []
    loss, tokens = scoring.sampled_nll(), parts.product(*weights)
    term = parts.Term("policy", parts.sharded, parts.clean, loss, tokens, mean_over="all", per="batch")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="opd", title="On-policy distillation, sampled",
    summary="Policy gradient whose advantage, token by token, is log T - log S of the sampled token.",
    paper="Thinking Machines Lab 2025, On-Policy Distillation; IW-OPD as in TRL 1.16",
    section=Settings, plan=plan, group="related",
    formula="A = sg[log T(y) - log S(y)]; L = -(1/tokens of the step) sum w A log S(y), w_i = 1 + iw (1 - "
    "(sum of |A_j|, j < i)/(sum of |A_j|)) within a reply.",
    choices="Teacher: the EMA under the clean context (theirs is a larger model). A is of the training pass; "
    "TRL takes the log-probabilities of sampling where it has them.",
)]  # fmt: skip

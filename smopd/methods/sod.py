"""SOD (arXiv 2605.07725): GRPO, and a log-ratio that fades as a conversation drifts from the teacher."""

from dataclasses import replace
from typing import Any

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    samples: int = Field(16, ge=1, le=1024, description="rollouts of each example")
    margin: float = Field(0.2, ge=0, description="a turn's weight is at most 1 + this")
    eps: float = Field(1e-6, gt=0, description="added to a turn's discrepancy")
    start: int = Field(2, ge=1, description="turn, from 1, with which the log-ratio and its weights begin")
    outcome: float = Field(1.0, ge=0, description="scale of the outcome's part; 0 = off")


def plan(s: Settings) -> "parts.Plan":
    drift = parts.step_ratio(s.margin, s.eps, s.start)

    def begun(tokens: "parts.Tokens") -> Any:
        return tokens.log_ratio * (tokens.reply.turn >= s.start - 1)

    # Both terms name the teacher, though one has no use for it: so they share the products of a reply.
    nll, play = scoring.sampled_nll(), Play(samples=s.samples)
    distil = parts.Term(
        "distil", parts.sharded, parts.clean, nll, begun, turns=drift, mean_over="all", per="batch"
    )
    outcome = replace(distil, name="outcome", tokens=parts.advantage, turns=parts.uniform, scale=s.outcome)
    return parts.Plan((play,), (distil, outcome), grade=parts.group_centred)


METHODS = [Method(
    name="sod", title="SOD: turns count less the further they have drifted",
    summary="Group-centred outcome and log T - log S as advantages, the latter weighed by the turns' drift.",
    paper="SOD, arXiv 2605.07725", section=Settings, plan=plan, group="related",
    formula="d_k = mean |log S(y) - log T(y)| of turn k; w_1 = 1, w_k = min(product over u < k of (d_u + "
    "eps)/(d_(u+1) + eps), 1.2); A = (o - mean o)/(std o + 1e-6); L = -(1/tokens of the step) sum (A + w_k "
    "sg[log T(y) - log S(y)]) log S(y).",
    choices="Teacher: the EMA under the clean context (the paper's is a larger model). A turn is a sharded "
    "reply, and the first of the weights and the log-ratio is the second: at the first, this teacher sees "
    "what the student sees, and d_1 near 0 would take all weights to 0; its tokens count in the divisor, "
    "with A alone. One update a step: the ratio of new to old policy is 1, its clip idle. The released code "
    "has 0.5 for the margin, the paper 0.2. objective.outcome=0 leaves outcomes out.",
)]  # fmt: skip

"""REOPOLD (arXiv 2603.11137): the log-ratio as a reward with a floor, then only on tokens of high entropy."""

from math import log
from typing import Any

from smopd.methods import Field, Method, Play, Section, parts, scoring, share_of_steps


class Settings(Section):
    lam: float = Field(0.3, gt=0, lt=1, description="bounds the reward: its floor is log(lam)/(1 - lam)")
    keep: float = Field(0.2, gt=0, le=1, description="share of the step's tokens kept in the second phase")
    phase: float = Field(
        1 / 3, ge=0, le=1, description="share of the steps in the first phase",
        json_schema_extra=share_of_steps(),
    )  # fmt: skip
    samples: int = Field(8, ge=1, le=1024, description="rollouts of each example")
    importance_cap: float = Field(0.0, ge=0, description="cap of training over sampling probability; 0 = off")


def plan(s: Settings) -> "parts.Plan":
    floor = log(s.lam) / (1 - s.lam)

    def reward(tokens: "parts.Tokens") -> Any:
        return tokens.log_ratio.clamp_min(floor)

    def above_floor(tokens: "parts.Tokens") -> Any:
        return tokens.log_ratio >= floor

    mask = parts.after(s.phase, parts.batch(parts.top(parts.entropy, s.keep)), before=above_floor)
    weights = [mask, parts.counted(reward)]
    weights += [parts.importance(s.importance_cap)] if s.importance_cap else []
    loss, tokens = scoring.sampled_nll(), parts.product(*weights)
    term = parts.Term("policy", parts.sharded, parts.clean, loss, tokens, per="group")
    return parts.Plan((Play(samples=s.samples),), (term,))


METHODS = [Method(
    name="reopold", title="REOPOLD: a floored reward, entropy-masked in its second phase",
    summary="Policy gradient on log T - log S with a floor; after a third on the 20% of highest entropy.",
    paper="REOPOLD, arXiv 2603.11137", section=Settings, plan=plan, group="compared",
    formula="R = sg[log T(y) - log S(y)], R^ = max(R, log(lam)/(1 - lam)); L = mean over the step's prompts "
    "of -(1/sum M) sum M R^ log S(y), both sums over the prompt's rollouts; phase 1: M = [R >= floor]; phase "
    "2: M = top 20% of student entropy over the step.",
    choices="Teacher: the EMA under the clean context (the paper's is a larger model). A rollout is its "
    "sharded replies together. An example drawn twice in a step is two prompts; one of which nothing is kept "
    "counts as 0.",
)]  # fmt: skip

"""EOPD (arXiv 2603.07079): sampled reverse KL, and forward KL besides where the teacher is uncertain."""

from dataclasses import replace
from typing import Any

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    threshold: float = Field(0.8, ge=0, description="teacher's entropy in nats from which forward KL counts")
    alpha: float = Field(1.0, ge=0, description="scale of the forward KL; 0 = off")
    top_k: int = Field(16, ge=1, description="entries of the forward KL: the teacher's top k")
    clip: float = Field(0.2, gt=0, description="PPO clip range of training over sampling probability")


def plan(s: Settings) -> "parts.Plan":
    def advantage(tokens: "parts.Tokens") -> Any:
        return tokens.teacher_logp - tokens.engine_logp

    def uncertain(tokens: "parts.Tokens") -> Any:
        return tokens.teacher_entropy >= s.threshold

    nll, ratio = scoring.sampled_nll(), parts.clipped_ratio(advantage, s.clip)
    policy = parts.Term("policy", parts.sharded, parts.clean, nll, ratio, mean_over="all", per="batch")
    kl, gate = scoring.top_k_forward_kl(s.top_k, True), parts.gate(uncertain)
    cover = replace(policy, name="cover", loss=kl, tokens=gate, scale=s.alpha)
    return parts.Plan((Play(),), (policy, cover))


METHODS = [Method(
    name="eopd", title="EOPD: forward KL besides, where the teacher is uncertain",
    summary="Policy gradient on log T - log S on every token; forward KL on those of high teacher entropy.",
    paper="EOPD, arXiv 2603.07079", section=Settings, plan=plan, group="compared",
    formula="A = log T(y) - log S_old(y), r = S(y)/S_old(y); L = (1/tokens of the step) sum -min(r A, "
    "clip(r, 1 - eps, 1 + eps) A) + alpha [H_T >= 0.8] sum_v T_16(v) (log T_16(v) - log S(v)), T_16: the "
    "teacher on its 16 likeliest tokens, summing to 1 there.",
    choices="Teacher: the EMA under the clean context (the paper's is a larger model). Sharded replies. "
    "S_old: the engine's log-probabilities; with one update a step the clip (0.2, the paper names none) only "
    "meets what engine and training differ by. The first part is its gradient, as a weighted log-likelihood. "
    "The authors' code does not renormalise the teacher, the paper does. Its own training: lr 3e-6, batch "
    "128, temperature 1.",
)]  # fmt: skip

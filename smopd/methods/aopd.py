"""AOPD (arXiv 2605.06387 v3): policy gradient where the teacher likes the token better, else forward KL."""

from typing import Any

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    threshold: float = Field(0.0, ge=-1, le=1, description="T(y) - S(y) up to which forward KL steps in")
    top_k: int = Field(32, ge=1, description="entries of the forward KL: the teacher's top k")


def plan(s: Settings) -> "parts.Plan":
    def intervened(tokens: "parts.Tokens") -> Any:
        return tokens.teacher_logp.exp() - tokens.student_logp.exp() <= s.threshold

    def left_alone(tokens: "parts.Tokens") -> Any:
        return ~intervened(tokens)

    kl, gate = scoring.top_k_forward_kl(s.top_k), parts.gate(intervened)
    guide = parts.Term("guide", parts.sharded, parts.clean, kl, gate, mean_over="all", scale=1 / s.top_k)
    nll, reward = scoring.sampled_nll(), parts.product(left_alone, parts.log_ratio)
    policy = parts.Term("policy", parts.sharded, parts.clean, nll, reward, mean_over="all")
    return parts.Plan((Play(),), (guide, policy))


METHODS = [Method(
    name="aopd", title="AOPD: policy gradient where the teacher agrees, forward KL where not",
    summary="Tokens the teacher finds no likelier than the student: top-32 forward KL; else log T - log S.",
    paper="AOPD, arXiv 2605.06387 v3", section=Settings, plan=plan, group="compared",
    formula="G = [T(y) - S(y) <= 0]; L = (1/|y|) sum G (1/32) sum over the teacher's top 32 of T(v) (log "
    "T(v) - log S(v)) - (1 - G) sg[log T(y) - log S(y)] log S(y); nothing is renormalised.",
    choices="Teacher: the EMA under the clean context (the paper's is a larger model and it leaves "
    "self-distillation open). y is a sharded reply: mean over tokens, replies, rollouts.",
)]  # fmt: skip

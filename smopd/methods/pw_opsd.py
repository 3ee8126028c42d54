"""PW-OPSD (arXiv 2605.21606): OPSD's clipped forward KL, in which late tokens of a reply count more."""

from typing import Any

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    floor: float = Field(0.25, ge=0, le=1, description="weight that the earliest tokens keep")
    centre: float = Field(0.3, ge=0, le=1, description="place in the reply where the weight is half way up")
    width: float = Field(0.1, gt=0, description="how gently the weight rises, as a share of the reply")
    entry_cap: float = Field(0.05, gt=0, description="cap of one vocabulary entry's part, in nats")
    temperature: float = Field(1.1, gt=0, description="softens both distributions")


def plan(s: Settings) -> "parts.Plan":
    def late(tokens: "parts.Tokens") -> Any:
        place = (tokens.position + 0.5) / tokens.length
        return s.floor + (1 - s.floor) * ((place - s.centre) / s.width).sigmoid()

    loss, teacher = scoring.forward_kl(s.temperature, s.entry_cap), parts.with_reference
    term = parts.Term("turns", parts.sharded, teacher, loss, late, mean_over="all", weights="base")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="pw-opsd", title="PW-OPSD: position-weighted self-distillation",
    summary="Forward KL to the base model that knows the answer; weights rise with a token's place.",
    paper="PW-OPSD, arXiv 2605.21606", section=Settings, plan=plan, group="related",
    formula="w_i = 0.25 + 0.75 sigmoid((u_i - 0.3)/0.1), u_i = (i - 1/2)/n for token i of n; L = mean over "
    "replies of (1/n) sum w_i sum_v min(T_v log(T_v/S_v), 0.05), both at temperature 1.1.",
    choices="Privileged context: what the clean teacher sees, and the reference answer (theirs: a whole "
    "solution). Examples without one are left out. Every reply is a sequence. The released code's u_i, the "
    "middle of the token. Its own training: lr 5e-6, 100 steps, 32 rollouts, 1,024 tokens, sampled at "
    "temperature 1.1 (rollout.temperature; here the recipe's, as for every method).",
)]  # fmt: skip

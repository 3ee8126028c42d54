"""OPSD (arXiv 2601.18734): forward KL to the base model that has seen the reference answer."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    clip: float = Field(0.05, gt=0, description="cap of one vocabulary entry's part")
    temperature: float = Field(1.1, gt=0, description="softens both distributions")


def plan(s: Settings) -> "parts.Plan":
    loss = scoring.forward_kl(s.temperature, s.clip)
    term = parts.Term("distil", parts.sharded, parts.with_reference, loss, weights="base")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="opsd", title="OPSD: the base model that knows the answer",
    summary="Forward KL, capped by entry, to the frozen base model under the clean context and the answer.",
    paper="OPSD, arXiv 2601.18734", section=Settings, plan=plan, group="related",
    formula="L = (1/|y|) sum over tokens and v of min(T (log T - log S), 0.05), both at temperature 1.1, T: "
    "the base model after the clean context and the reference answer.",
    choices="The paper's teacher sees a worked solution, ours the reference answer; examples without one are "
    "left out. The released scripts run a Jensen-Shannon divergence without a cap. Its own training: lr "
    "2e-4, LoRA 64/128, 1,024 tokens, sampled at temperature 1.1.",
)]  # fmt: skip

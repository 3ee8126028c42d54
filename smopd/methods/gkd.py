"""GKD (arXiv 2306.13649): the generalised Jensen-Shannon divergence on the student's own samples."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    beta: float = Field(0.5, ge=0, le=1, description="teacher's share; 0 = KL(T||S), 1 = KL(S||T)")
    temperature: float = Field(1.0, gt=0, description="softens both distributions")


def plan(s: Settings) -> "parts.Plan":
    loss = scoring.gjs(s.beta, s.temperature)
    term = parts.Term("turns", parts.sharded, parts.clean, loss, mean_over="all", per="batch")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="gkd", title="GKD: generalised knowledge distillation, on-policy",
    summary="GJS between student and clean teacher on every token of the student's replies; nothing else.",
    paper="GKD, arXiv 2306.13649", section=Settings, plan=plan, group="related",
    formula="m = beta T + (1 - beta) S; L = mean over the step's tokens of beta KL(T||m) + (1 - beta) "
    "KL(S||m).",
    choices="Only the student's samples (lambda 1). Teacher: the EMA under the clean context.",
)]  # fmt: skip

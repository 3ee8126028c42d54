"""CCOPD (arXiv 2605.30251): the base model that saw the complete task teaches the answer turn alone."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    beta: float = Field(1.0, ge=0, le=1, description="1 = KL(S||T), 0 = KL(T||S), between them GJS")


def plan(s: Settings) -> "parts.Plan":
    seen, loss = parts.whole_task, scoring.gjs(s.beta)
    term = parts.Term("answer", parts.answer, seen, loss, mean_over="all", per="batch", weights="base")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="ccopd", title="CCOPD: canonical-context on-policy distillation",
    summary="Reverse KL of the answer turn to the frozen base model that saw the complete task.",
    paper="CCOPD, arXiv 2605.30251", section=Settings, plan=plan, group="related",
    formula="L = mean over the step's answer tokens of KL(S || T_full), T the base model.",
    choices="Native. The divisor, tokens of the whole step, is ours. Its own training: lr 3e-5, GSM8K.",
)]  # fmt: skip

"""G-OPD and ExOPD (arXiv 2602.12125): reverse KL to a target past the teacher, away from a reference."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    lam: float = Field(1.25, ge=0, description="between reference (0) and teacher (1); above 1 extrapolates")


def plan(s: Settings) -> "parts.Plan":
    teacher = parts.mixed((s.lam, parts.clean), (1 - s.lam, parts.dirty))
    term = parts.Term("turns", parts.sharded, teacher, scoring.reverse_kl(), mean_over="all", per="batch")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="exopd", title="ExOPD: on-policy distillation with an extrapolated reward",
    summary="Reverse KL to T^lam R^(1 - lam): what the clean context changes, lam times. lam 1 is OPD.",
    paper="G-OPD, arXiv 2602.12125", section=Settings, plan=plan, group="related",
    formula="Q prop. to T_clean^lam * T_dirty^(1 - lam); L = mean over the step's tokens of KL(S || Q).",
    choices="Reference: the EMA teacher under the student's own context (theirs: a base model). Q is "
    "normalised and the KL taken over the whole vocabulary; the released code takes the sampled token's "
    "log-ratio as its advantage.",
)]  # fmt: skip

"""TIP (arXiv 2604.14084): reverse KL on the half of the step's tokens that are uncertain or disagreed on."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    keep: float = Field(0.5, gt=0, le=1, description="share of the step's tokens kept")
    entropy_clip: float = Field(0.0, ge=0, lt=1, description="share of top entropies made equal; 0 = off")


def plan(s: Settings) -> "parts.Plan":
    mask = parts.batch(parts.top(parts.soft_or(s.entropy_clip), s.keep))
    term = parts.Term("turns", parts.sharded, parts.clean, scoring.reverse_kl(), mask, per="batch")
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="tip", title="TIP: tokens by a soft OR of entropy and divergence",
    summary="Keeps the 50% of the step's tokens with the highest h + d - hd of entropy and reverse KL.",
    paper="TIP, arXiv 2604.14084", section=Settings, plan=plan, group="related",
    formula="h, d: student entropy and KL(S||T), min-max scaled over the step; s = h + d - h d; L = mean of "
    "KL(S||T) over the top 50% by s.",
    choices="Teacher: the EMA under the clean context. Ranked over the step, as the paper's scaling is; "
    "tokens at the threshold are kept, so of an odd number one more than half. Public reproductions clip the "
    "top 2% of the entropies, the paper does not (objective.entropy_clip). Its own lr: 1e-6.",
)]  # fmt: skip

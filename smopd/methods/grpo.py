"""GRPO: the outcome of a conversation, centred among its example's rollouts, as every token's advantage."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    samples: int = Field(8, ge=2, le=1024, description="rollouts of each example")


def plan(s: Settings) -> "parts.Plan":
    loss = scoring.sampled_nll()
    term = parts.Term("policy", parts.sharded, None, loss, parts.advantage, mean_over="all", per="batch")
    return parts.Plan((Play(samples=s.samples),), (term,), grade=parts.group_centred)


METHODS = [Method(
    name="grpo", title="GRPO on the outcome of the conversation",
    summary="Policy gradient; a rollout's advantage is its outcome less its group's mean, over their spread.",
    paper="Shao et al. 2024, arXiv 2402.03300", section=Settings, plan=plan, group="baselines",
    formula="A_i = (o_i - mean o)/(std o + 1e-6) within an example's rollouts; L = -(1/tokens of the step) "
    "sum A_i log S(y).",
    choices="One update a step, so the ratio of new to old policy is 1 and its clip idle. No KL term. The "
    "tokens of the step are counted together; the paper divides by each reply's own. An example drawn twice "
    "in a step has two groups.",
)]  # fmt: skip

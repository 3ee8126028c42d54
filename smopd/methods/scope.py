"""SCOPE (arXiv 2604.10688): right rollouts by likelihood, wrong ones by log-ratio, weighed by perplexity."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    samples: int = Field(8, ge=1, le=1024, description="rollouts of each example")
    tau: float = Field(1.0, gt=0, description="temperature of the softmax over mean log-probabilities")


def plan(s: Settings) -> "parts.Plan":
    right, wrong = (parts.judged(parts.sharded, correct) for correct in (True, False))
    odd, nll = parts.group_share("student_logp", -1 / s.tau), scoring.sampled_nll()
    trusted = parts.product(parts.group_share("teacher_logp", 1 / s.tau), parts.log_ratio)
    learn = parts.Term("right", right, None, nll, odd, mean_over="sum", per="group")
    mend = parts.Term("wrong", wrong, parts.clean, nll, trusted, mean_over="sum", per="group")
    return parts.Plan((Play(samples=s.samples),), (learn, mend))


METHODS = [Method(
    name="scope", title="SCOPE: right and wrong rollouts apart, weighed by perplexity",
    summary="Likelihood of right rollouts the student finds odd; log-ratio on wrong ones the teacher likes.",
    paper="SCOPE, arXiv 2604.10688", section=Settings, plan=plan, group="compared",
    formula="right: w = PPL_S^(1/tau) / sum over the example's right rollouts, loss -w sum log S(y); wrong: "
    "w = PPL_T^(-1/tau) / sum over its wrong ones, loss w sum sg[log S(y) - log T(y)] log S(y); summed over "
    "a prompt's rollouts and their tokens, mean over the prompts of the step.",
    choices="Teacher: the EMA under the clean context (the paper's is a larger model). A rollout is its "
    "sharded replies together; perplexity is over all their tokens. An example drawn twice in a step is two "
    "prompts. One update a step: the ratio to the old policy is 1. The released code weighs right rollouts "
    "the other way round and multiplies by their number; here as the paper has it. Its own training: lr "
    "5e-5, batch 256, temperature 0.6.",
)]  # fmt: skip

"""SFT: the student learns right answers to the complete task by heart, its own or the references."""

from typing import Literal

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    solutions: Literal["own", "reference"] = Field("own", description="sampled and right, or references")
    samples: int = Field(4, ge=1, le=1024, description="own solutions sampled of each example")


def plan(s: Settings) -> "parts.Plan":
    use_references = s.solutions == "reference"
    play = Play("full", samples=1 if use_references else s.samples, reference=use_references)
    right, loss = parts.judged(parts.full, True), scoring.sampled_nll()
    return parts.Plan((play,), (parts.Term("solutions", right, None, loss, mean_over="all", per="batch"),))


METHODS = [Method(
    name="sft", title="SFT on the model's own correct FULL solutions",
    summary="Plays the complete task in one message and trains on the replies that were judged right; with "
    "objective.solutions=reference on the references, which is how a base for experiments is made.",
    paper="no paper; rejection sampling as in Yuan et al. 2023, arXiv 2308.01825",
    section=Settings, plan=plan, group="baselines",
    formula="L = -(1/tokens of the right replies) sum log S(y) over the step's right FULL replies.",
    choices="Solutions are sampled anew from the student at every step, not once from the base model. A step "
    "without a right one changes nothing.",
)]  # fmt: skip

"""SFT: the student learns its own right answers to the complete task by heart."""

from pydantic import Field

from smopd import objective as parts
from smopd import scoring
from smopd.methods import Method
from smopd.rollout.play import Play
from smopd.settings import Section


class Settings(Section):
    """The loss of SFT."""

    samples: int = Field(4, ge=1, le=1024, description="solutions sampled of each example")


def plan(s: Settings) -> "parts.Plan":
    """What the settings mean."""
    return parts.Plan(
        (Play("full", samples=s.samples),),
        (parts.Term("solutions", parts.judged(parts.full, True), None, scoring.sampled_nll(),
                    mean_over="all", per="batch"),),
    )  # fmt: skip


METHODS = [
    Method(
        "sft", "SFT on the model's own correct FULL solutions",
        "Plays the complete task in one message and trains on the replies that were judged right.",
        "no paper; rejection sampling as in Yuan et al. 2023, arXiv 2308.01825", Settings, plan, {},
        "baselines",
        formula="L = -(1/tokens of the right replies) sum log S(y) over the step's right FULL replies.",
        choices="Solutions are sampled anew from the student at every step, not once from the base model. A "
        "step without a right one changes nothing.",
    )
]  # fmt: skip

"""SMOPD (arXiv 2608.14647): the four configurations of its section 5.4, and the settings they and the
controls share.

Middle turns: the generalised Jensen-Shannon divergence to the teacher that saw the user turns alone, over the
tokens the entropy mask keeps (equations 4 and 5), weighted by reliability and, with eta, by outcome (equation
8). Answer turn and, with probability rho, a reply to the FULL prompt: reverse KL to the teacher that saw the
whole task. A cap on every token.
"""

from math import inf
from typing import Any, ClassVar, Literal

from smopd.errors import UserError
from smopd.methods import Field, Group, Method, Play, Section, parts, scoring, share_of_steps

PAPER = "SMOPD, arXiv 2608.14647"


class Settings(Section):
    remedies: ClassVar[dict[str, dict[str, Any]]] = {
        "clipped": {"clip_mode": "scale", "clip": inf},
        "FULL": {"rho": None, "full": None},
    }
    keep: float = Field(0.8, gt=0, le=1, description="share of a middle reply's tokens kept; 1 = no mask")
    eta: float = Field(0.0, ge=0, le=1, description="how much the outcome scales a turn's weight; 0 = off")
    ranking: Literal["entropy", "random", "divergence", "inverted", "soft-or"] = Field(
        "entropy", description="the mask keeps the highest; inverted drops them; soft-or is TIP's"
    )
    denominator: Literal["kept", "all"] = Field(
        "kept", description="a masked reply's loss is divided by its kept tokens, or (control) by all"
    )
    beta_mid: float = Field(0.5, ge=0, le=1, description="teacher's share in middle turns; 0.5 = JS")
    beta_final: float = Field(1.0, ge=0, le=1, description="GJS beta of answer and FULL; 1 = KL(S||T)")
    clip: float = Field(0.5, gt=0, allow_inf_nan=True, description="cap of a token's cost, nats; inf = off")
    clip_level: Literal["position", "vocab"] = Field(
        "position", description="cap after the sum over the vocabulary, or each of its terms (OPSD)"
    )
    clip_mode: Literal["hard", "scale", "soft", "relative"] = Field(
        "hard",
        description="gradient above the cap: none (hard), of constant length (scale), decreasing (soft); "
        "relative: hard, at clip_times the median of the reply's tokens",
    )
    rho: float = Field(0.2, ge=0, le=1, description="probability that an example also gets the FULL branch")
    full_branch: Literal["additive", "exclusive"] = Field(
        "additive", description="FULL loss beside the others, or instead of them (MAIGO)"
    )
    mask_after: float = Field(
        0.33, ge=0, le=1, description="share of the steps before the entropy mask begins",
        json_schema_extra=share_of_steps(keep=1.0),
    )  # fmt: skip
    quantile: Literal["linear", "lower", "higher", "midpoint", "nearest"] = Field(
        "linear", description="interpolation of the mask's threshold"
    )
    importance_cap: float = Field(0.0, ge=0, description="cap of training over sampling probability; 0 = off")
    eps: float = Field(1e-6, gt=0, description="floor of a turn's discrepancy in the reliability weight")
    middle: float = Field(1.0, ge=0, description="scale of the middle turns' loss; 0 = off")
    answer: float = Field(1.0, ge=0, description="scale of the answer turn's loss; 0 = off")
    full: float = Field(1.0, ge=0, description="scale of the FULL branch's loss; 0 = off")
    clean: Literal["separate", "merged", "goal-last"] = Field(
        "separate",
        description="the teacher's user turns: a message each (the paper), in one message, or in one with "
        "the first at its end",
    )
    clip_times: float = Field(3000.0, gt=0, description="clip_mode relative: times the reply's median")
    balance: bool = Field(False, description="no cap; scale the terms' gradients to the mean of their norms")


def plan(s: Settings) -> "parts.Plan":
    if s.clip_mode != "hard" and s.clip_level == "vocab":
        way = "set objective.clip_level=position"
        raise UserError(f"objective.clip_mode: {s.clip_mode} caps a whole position; {way}")
    if s.keep == 1 and (s.ranking != "entropy" or s.denominator != "kept"):
        problem = "there is no mask with objective.keep=1; lower it, e.g. to 0.8"
        raise UserError(f"objective.ranking, objective.denominator: {problem}")
    if not (s.middle or s.answer or (s.full and s.rho)):
        raise UserError("objective.middle, objective.answer, objective.full: every term is off; leave one on")
    entry_cap = s.clip if s.clip_level == "vocab" else None
    caps = {"hard": parts.hard, "scale": parts.scale, "soft": parts.soft, "relative": parts.relative}
    limit = s.clip_times if s.clip_mode == "relative" else s.clip
    cap = parts.no_cap if entry_cap or s.balance else caps[s.clip_mode](limit)
    ranking = {
        "entropy": parts.entropy, "random": parts.at_random, "divergence": parts.divergence,
        "inverted": parts.inverted_entropy, "soft-or": parts.soft_or(),
    }[s.ranking]  # fmt: skip
    mask: Any = parts.after(s.mask_after, parts.top(ranking, s.keep, s.quantile))
    every: Any = parts.every_token
    if s.importance_cap:
        every = parts.importance(s.importance_cap)
        mask = parts.product(mask, every)
    users, loss = parts.UsersOnly(s.clean), scoring.gjs(s.beta_mid, entry_cap=entry_cap)
    to_final, turns = scoring.gjs(s.beta_final, entry_cap=entry_cap), parts.reliability_weight(s.eta, s.eps)
    middle = parts.Term("middle", parts.middle, users, loss, mask, cap, turns, s.denominator, scale=s.middle)
    answer = parts.Term("answer", parts.answer, parts.whole_task, to_final, every, cap, scale=s.answer)
    full = parts.Term("full", parts.full, parts.whole_task, to_final, every, cap, scale=s.full)
    branch = Play("full", share=s.rho, instead=s.full_branch == "exclusive", verify=False)
    return parts.Plan((Play(), branch), (middle, answer, full), balance=s.balance)


def method(
    name: str, title: str, summary: str, paper: str, group: Group = "paper", **settings: float | str
) -> Method:
    """A method of this family, by the settings in which it differs."""
    values = {f"objective.{key}": value for key, value in settings.items()}
    return Method(name, title, summary, paper, Settings, plan, values, group)


METHODS = [
    method("baseline", "Clean-teacher, dirty-student self-distillation",
           "Every token of a middle reply counts; turns are weighted by the reliability proxy alone.",
           f"{PAPER}, sections 4.1 and 5.4, table 2", keep=1.0, eta=0.0),
    method("entropy", "SMOPD: token-level entropy masking",
           "Keeps the 80% of a middle reply's tokens where the student is least certain, after the first "
           "third of training.",
           f"{PAPER}, section 4.2, equations 4 and 5, table 2", keep=0.8, eta=0.0),
    method("outcome", "Outcome-guided turn weighting",
           "A middle turn weighs 1.2 times as much when the final answer is wrong, 0.8 when it is right.",
           f"{PAPER}, section 4.3, equation 8, table 2", keep=1.0, eta=0.2),
    method("combined", "Entropy masking and outcome weighting together",
           "The entropy mask of `entropy` and the outcome scalar of `outcome` in one loss.",
           f"{PAPER}, sections 4.2 and 4.3, equation 9, tables 2 and 4", keep=0.8, eta=0.2),
]  # fmt: skip

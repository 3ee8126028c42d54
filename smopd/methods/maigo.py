"""MAIGO (arXiv 2605.27186): a FULL conversation instead of the sharded, or its answer and a middle turn."""

from math import inf
from typing import Any, ClassVar

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    remedies: ClassVar[dict[str, dict[str, Any]]] = {"clipped": {"clip": inf}, "FULL": {"rho": None}}
    rho: float = Field(0.2, ge=0, le=1, description="probability of a FULL conversation instead")
    beta_mid: float = Field(0.5, gt=0, lt=1, description="teacher's share in the middle turn's mixture")
    clip: float = Field(0.5, gt=0, allow_inf_nan=True, description="cap of one token's divergence, in nats")
    eps: float = Field(1e-6, gt=0, description="floor of a turn's signed gap")


def plan(s: Settings) -> "parts.Plan":
    cap, kl = parts.hard(s.clip), scoring.reverse_kl()
    drawn, weight = parts.up_to_one_sampled(parts.middle), parts.last_of_sampled(s.eps)
    middle = parts.Term("middle", drawn, parts.users_only, scoring.gjs(s.beta_mid), cap=cap, turns=weight)
    answer = parts.Term("answer", parts.answer, parts.users_and_task, kl, cap=cap)
    full = parts.Term("full", parts.full, parts.whole_task, kl, cap=cap)
    branch = Play("full", share=s.rho, instead=True, verify=False)
    return parts.Plan((Play(), branch), (middle, answer, full))


METHODS = [Method(
    name="maigo", title="MAIGO: one drawn middle turn, weighted by its reliability",
    summary="Answer turn by reverse KL to the teacher that saw user turns and task; one middle turn by JS.",
    paper="MAIGO, arXiv 2605.27186",
    section=Settings, plan=plan, settings={"teacher.decay": 0.99}, group="compared",
    formula="z ~ Bernoulli(rho). z = 1: KL(S||T_full) on a FULL reply. z = 0: KL(S||T_users+full) on the "
    "answer + w_t * GJS_0.5(T_users, S) on one t drawn among the eligible middle turns, w_t = med/(med + "
    "d_t), d_t = max(mean(log S(y) - log T(y)), eps), med over eligible turns up to t.",
    choices="Native. Its own training: lr 5e-6, 100 steps, 64 rollouts a step, 256/4096 tokens.",
)]  # fmt: skip

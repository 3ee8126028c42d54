"""SAGE-OPD (arXiv 2606.19659): turns count as far as the teacher is sure of itself there."""

from typing import Literal

from smopd.methods import Field, Method, Play, Reply, Section, parts, scoring


class Settings(Section):
    intervene: Literal["always", "failed"] = Field(
        "always", description="on every turn, or on all but correct answers"
    )


def plan(s: Settings) -> "parts.Plan":
    def wanted(reply: Reply) -> bool:
        right = reply.last and reply.verdict is not None and reply.verdict.correct
        return reply.view == "sharded" and not (s.intervene == "failed" and right)

    replies, loss = parts.where(wanted), scoring.reverse_kl()
    term = parts.Term("turns", replies, parts.clean, loss, mean_over="all", turns=parts.confidence)
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="sage-opd", title="SAGE-OPD: turns weighted by the teacher's confidence",
    summary="Reverse KL; a turn weighs the teacher's mean highest probability, normalised in the rollout.",
    paper="SAGE-OPD, arXiv 2606.19659", section=Settings, plan=plan, group="related",
    formula="c_t = mean over tokens of max T; L = (sum_t i_t c_t sum KL(S||T)) / (sum_t i_t c_t n_t), n_t "
    "tokens of turn t.",
    choices="i_t is 1: a sharded conversation has no environment to observe and no judge; with "
    "intervene=failed it is 0 for an answer judged right. Normalised in each rollout. Teacher: the EMA under "
    "the clean context.",
)]  # fmt: skip

"""SAGE-OPD (arXiv 2606.19659): turns count as far as the teacher is sure of itself there."""

from typing import Literal

from pydantic import Field

from smopd.methods import Method, Play, Reply, Section, parts, scoring


class Settings(Section):
    intervene: Literal["always", "failed"] = Field(
        "always", description="on every turn, or on all but correct answers"
    )


def plan(s: Settings) -> "parts.Plan":
    def wanted(reply: Reply) -> bool:
        skipped = (
            s.intervene == "failed" and reply.last and reply.verdict is not None and reply.verdict.correct
        )
        return reply.view == "sharded" and not skipped

    return parts.Plan(
        (Play(),),
        (parts.Term("turns", parts.where(wanted), parts.clean, scoring.reverse_kl(), mean_over="all",
                    turns=parts.confidence),),
    )  # fmt: skip


METHODS = [
    Method(
        name="sage-opd", title="SAGE-OPD: turns weighted by the teacher's confidence",
        summary="Reverse KL; a turn's weight is the teacher's mean highest probability, normalised in the "
        "rollout.",
        paper="SAGE-OPD, arXiv 2606.19659", section=Settings, plan=plan, settings={}, group="related",
        formula="c_t = mean over tokens of max T; L = (sum_t i_t c_t sum KL(S||T)) / (sum_t i_t c_t n_t), "
        "n_t tokens of turn t.",
        choices="i_t is 1: a sharded conversation has no environment to observe and no judge; with "
        "intervene=failed it is 0 for an answer judged right. Normalised in each rollout. Teacher: the EMA "
        "under the clean context.",
    )
]  # fmt: skip

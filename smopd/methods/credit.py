"""CREDIT (arXiv 2605.11613): reverse KL to a teacher from which is taken what it says whatever the input."""

from smopd.chat.messages import full_messages
from smopd.methods import Field, Method, Peers, Play, Reply, Section, parts, scoring


class Settings(Section):
    lam: float = Field(0.1, ge=0, description="how much of the other inputs' logits is taken away; 0 = none")
    contrasts: int = Field(1, ge=1, description="other inputs, drawn among the step's")
    samples: int = Field(8, ge=1, le=1024, description="rollouts of each example")


def plan(s: Settings) -> "parts.Plan":
    def specific(reply: Reply, peers: Peers) -> "parts.Contexts":
        if parts.is_middle(reply):
            others = parts.other_users(reply, peers, s.contrasts)
        else:
            others = [full_messages(example) for example in peers.others(reply, s.contrasts)]
        taken = [(-s.lam / len(others), shown) for shown in others] if s.lam else []
        return [*parts.clean(reply, peers), *taken]

    term = parts.Term("distil", parts.sharded, specific, scoring.reverse_kl(), mean_over="all", per="batch")
    return parts.Plan((Play(samples=s.samples),), (term,))


METHODS = [Method(
    name="credit", title="CREDIT: a teacher less what it says to other inputs",
    summary="Reverse KL to the teacher's logits less a share of those under another example of the step.",
    paper="CREDIT, arXiv 2605.11613",
    section=Settings, plan=plan, settings={"teacher.decay": 0.99}, group="compared",
    formula="R(v) = log T(v|x) - log S(v) - (lam/C) sum over C other inputs x' of log T(v|x'); L = "
    "-(1/tokens of the step) sum over tokens and v of S(v) R(v), which is KL(S || softmax(z_x - (lam/C) sum "
    "z_x')) up to a constant.",
    choices="(x, z): the clean context; x': that of another example of the step, as many user turns for a "
    "middle reply, the whole task for the answer. A step of one example has none: plain reverse KL. The "
    "whole vocabulary instead of the teacher's top 20. Its own training: lr 1e-6, 32 problems.",
)]  # fmt: skip

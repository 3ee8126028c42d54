"""OGLS-SD (arXiv 2605.12400 v1): wrong rollouts learn from the base model's logits, moved from what it says
after wrong attempts to what it says after right ones; and a form without a verifier, moved from the dirty to
the clean context.
"""

from typing import Any, Literal

from pydantic import Field

from smopd import objective as parts
from smopd import scoring
from smopd.methods import Method
from smopd.rollout.play import Peers, Play, Reply
from smopd.settings import Section

HINT = "Here is a reference solution to this task:\n"  # for right and wrong ones alike: what it adds cancels


class Settings(Section):
    """The loss of OGLS-SD."""

    lam: float = Field(3.0, gt=0, description="how far the logits are moved, at the end of the ramp")
    ramp: float = Field(1 / 3, ge=0, le=1, description="share of the steps in which lam grows from 0")
    clip: float = Field(0.05, gt=0, description="cap of one vocabulary entry's part, both ways")
    first: int = Field(1024, ge=1, description="tokens of a reply that count, from its beginning")
    steer: Literal["outcome", "clean"] = Field(
        "outcome", description="towards right attempts and from wrong ones, or from dirty to clean contexts"
    )
    samples: int = Field(8, ge=1, description="rollouts of each example")


def plan(s: Settings) -> "parts.Plan":
    """What the settings mean."""

    def lam(peers: Peers) -> float:
        return s.lam * min(1.0, peers.done / s.ramp) if s.ramp else s.lam

    def by_outcome(reply: Reply, peers: Peers) -> "parts.Contexts":
        right = [*parts.attempts(reply, peers, correct=True), *parts.references(reply)]
        wrong = parts.attempts(reply, peers, correct=False, own=True)
        if not right or not wrong:
            return []
        steered: list[tuple[float, Any]] = [(1.0, reply.context)]
        for pool, sign in ((right, 1), (wrong, -1)):
            share = sign * lam(peers) / len(pool)
            steered += [(share, parts.hinted(reply, HINT + text)) for text in pool]
        return steered

    def by_context(reply: Reply, peers: Peers) -> "parts.Contexts":
        return parts.mixed((1 - lam(peers), parts.dirty), (lam(peers), parts.clean))(reply, peers)

    def early(tokens: "parts.Tokens") -> Any:
        return tokens.position < s.first

    loss = scoring.reverse_kl(entry_cap=s.clip, both_ways=True)
    wrong, outcome = parts.judged(parts.sharded, correct=False), s.steer == "outcome"
    replies, teacher = (wrong, by_outcome) if outcome else (parts.sharded, by_context)
    return parts.Plan(
        (Play(samples=s.samples),),
        (parts.Term("steer", replies, teacher, loss, parts.gate(early), mean_over="sum", weights="base"),),
    )


PAPER = "OGLS-SD, arXiv 2605.12400 v1"
METHODS = [
    Method(
        "ogls-sd", "OGLS-SD: logits steered from wrong attempts to right ones",
        "Wrong rollouts only: reverse KL to the base model, steered by the group's right and wrong attempts.",
        PAPER, Settings, plan, {}, "compared",
        formula="z_T = z_0 + lam (mean z+ - mean z-), z+ after right attempts and the reference, z- after "
        "the group's wrong ones, its own too; L = sum over tokens and v of "
        "clip(S (log S - log T), -.05, .05) on wrong rollouts; lam grows to 3.",
        choices="z_0: the dirty context; z+ and z-: the clean context and an attempt's last reply. Left out "
        "where neither a right attempt nor a reference is known. The paper leaves open the ramp's length "
        "(here a third of the run) and the mean over a batch (here over a rollout's replies and the "
        "rollouts). v2 of the paper takes forward KL. Its own training: lr 5e-6, LoRA 64/128, temperature "
        "1.1.",
    ),
    Method(
        "ogls-sd-free", "OGLS-SD without a verifier: steered from dirty to clean contexts",
        "Every rollout: reverse KL to the base model's logits, moved beyond its clean context's.",
        f"after {PAPER}", Settings, plan, {"objective.steer": "clean", "objective.samples": 1}, "compared",
        formula="z_T = z_dirty + lam (z_clean - z_dirty); the loss of `ogls-sd` on every sharded reply.",
        choices="Ours: what its ablation calls positive-only steering, with the clean context as guidance.",
    ),
]  # fmt: skip

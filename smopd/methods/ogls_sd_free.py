"""OGLS-SD without a verifier (after arXiv 2605.12400 v1, section 5.4): every rollout learns from the base
model's logits, moved from the dirty to the clean context and beyond.
"""

from smopd import objective as parts
from smopd.methods import Method
from smopd.methods.ogls_sd import PAPER, Settings, moved, steered
from smopd.rollout.play import Peers, Reply


def plan(s: Settings) -> "parts.Plan":
    """What the settings mean."""

    def by_context(reply: Reply, peers: Peers) -> "parts.Contexts":
        lam = moved(s, peers)
        return parts.mixed((1 - lam, parts.dirty), (lam, parts.clean))(reply, peers)

    return steered(s, parts.sharded, by_context)


METHODS = [
    Method(
        "ogls-sd-free", "OGLS-SD without a verifier: steered from dirty to clean contexts",
        "Every rollout: reverse KL to the base model's logits, moved beyond its clean context's.",
        f"after {PAPER}", Settings, plan, {"objective.samples": 1}, "compared",
        formula="z_T = z_dirty + lam (z_clean - z_dirty); the loss of `ogls-sd` on every sharded reply.",
        choices="Ours: what its ablation calls positive-only steering, with the clean context as guidance.",
    )
]  # fmt: skip

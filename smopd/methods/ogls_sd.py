"""OGLS-SD (arXiv 2605.12400 v1): wrong rollouts learn from the base model's logits, moved from wrong attempts
to right ones; without a verifier (after section 5.4) all do, moved from the dirty context to the clean one.
"""

from smopd.methods import Field, Method, Peers, Play, Reply, Section, parts, scoring, share_of_steps

PAPER = "OGLS-SD, arXiv 2605.12400 v1"
HINT = "Here is a reference solution to this task:\n"  # for right and wrong ones alike: what it adds cancels


class Settings(Section):
    lam: float = Field(3.0, gt=0, description="steering strength of the logits, at the end of the ramp")
    ramp: float = Field(
        1 / 3, ge=0, le=1, description="share of the steps in which lam grows from 0",
        json_schema_extra=share_of_steps(),
    )  # fmt: skip
    clip: float = Field(0.05, gt=0, description="cap of one vocabulary entry's part, both ways")
    first: int = Field(1024, ge=1, description="tokens of a reply that count, from its beginning")
    samples: int = Field(8, ge=1, le=1024, description="rollouts of each example")


def moved(s: Settings, peers: Peers) -> float:
    """lam at this point of the run."""
    return s.lam * min(1.0, peers.done / s.ramp) if s.ramp else s.lam


def steered(s: Settings, replies: "parts.Replies", teacher: "parts.TeacherContext") -> "parts.Plan":
    """Reverse KL of these replies to the base model under mixed contexts."""
    loss = scoring.reverse_kl(entry_cap=s.clip, both_ways=True)
    early = parts.up_to_position(s.first)
    term = parts.Term("steer", replies, teacher, loss, early, mean_over="sum", weights="base")
    return parts.Plan((Play(samples=s.samples),), (term,))


def plan(s: Settings) -> "parts.Plan":
    def by_outcome(reply: Reply, peers: Peers) -> "parts.Contexts":
        right = [*parts.attempts(reply, peers, correct=True), *parts.references(reply)]
        wrong = parts.attempts(reply, peers, correct=False, with_own=True)
        if not right or not wrong:
            return []
        shares = [moved(s, peers) / len(right)] * len(right) + [-moved(s, peers) / len(wrong)] * len(wrong)
        hints = [parts.hinted(reply, HINT + text) for text in (*right, *wrong)]
        return [(1.0, reply.context), *zip(shares, hints, strict=True)]

    return steered(s, parts.judged(parts.sharded, correct=False), by_outcome)


def free_plan(s: Settings) -> "parts.Plan":
    def by_context(reply: Reply, peers: Peers) -> "parts.Contexts":
        lam = moved(s, peers)
        return parts.mixed((1 - lam, parts.dirty), (lam, parts.clean))(reply, peers)

    return steered(s, parts.sharded, by_context)


METHODS = [Method(
    name="ogls-sd", title="OGLS-SD: logits steered from wrong attempts to right ones",
    summary="Wrong rollouts: reverse KL to the base model, steered by the group's right and wrong attempts.",
    paper=PAPER, section=Settings, plan=plan, group="compared",
    formula="z_T = z_0 + lam (mean z+ - mean z-), z+ after right attempts and the reference, z- after the "
    "group's wrong ones, its own too; L = sum over tokens and v of clip(S (log S - log T), -.05, .05) on "
    "wrong rollouts; lam grows to 3.",
    choices="z_0: the dirty context; z+ and z-: the clean context and an attempt's last reply. Left out "
    "where neither a right attempt nor a reference is known. The paper leaves open the ramp's length (here a "
    "third of the run) and the mean over a batch (here over a rollout's replies and the rollouts). v2 of the "
    "paper takes forward KL. Its own training: lr 5e-6, LoRA 64/128, temperature 1.1.",
), Method(
    name="ogls-sd-free", title="OGLS-SD without a verifier: steered from dirty to clean contexts",
    summary="Every rollout: reverse KL to the base model's logits, moved beyond its clean context's.",
    paper=f"after {PAPER}",
    section=Settings, plan=free_plan, settings={"objective.samples": 1}, group="compared",
    formula="z_T = z_dirty + lam (z_clean - z_dirty); the loss of `ogls-sd` on every sharded reply.",
    choices="Ours: what its ablation calls positive-only steering, with the clean context as guidance.",
)]  # fmt: skip

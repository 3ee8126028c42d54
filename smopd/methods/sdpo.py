"""SDPO (arXiv 2601.20802): Jensen-Shannon divergence to the student that saw a right attempt of its group."""

from smopd.methods import Field, Method, Peers, Play, Reply, Section, parts, scoring


class Settings(Section):
    samples: int = Field(8, ge=2, le=1024, description="rollouts of each example")
    top_k: int = Field(100, ge=1, description="the student's top k entries; one more stands for the rest")
    beta: float = Field(0.5, gt=0, lt=1, description="teacher's share in the mixture")
    importance_cap: float = Field(2.0, gt=0, description="cap of training over sampling probability")


def sibling(reply: Reply, peers: Peers) -> "parts.Contexts":
    """What `clean` shows, and the first right answer of another rollout; nothing where there is none."""
    solutions = parts.attempts(reply, peers, correct=True)[:1]
    return [(1.0, parts.hinted(reply, f"A correct solution is:\n{text}")) for text in solutions]


def plan(s: Settings) -> "parts.Plan":
    loss, tokens = scoring.top_k_gjs(s.top_k, s.beta), parts.importance(s.importance_cap)
    term = parts.Term("distil", parts.sharded, sibling, loss, tokens, mean_over="all", per="batch")
    return parts.Plan((Play(samples=s.samples),), (term,))


METHODS = [Method(
    name="sdpo", title="SDPO: the student that saw a successful sibling, averaged",
    summary="Jensen-Shannon divergence to the averaged student that saw a right answer of the same group.",
    paper="SDPO, arXiv 2601.20802",
    section=Settings, plan=plan, settings={"teacher.decay": 0.95}, group="related",
    formula="L = (1/tokens of the step) sum min(S(y)/S_old(y), 2) JS(T, S) on the student's 100 likeliest "
    "entries and one for the rest, T: the EMA after the clean context and a right sibling's answer.",
    choices="Rollouts without a right sibling are left out, and not counted. There is no feedback. S_old: "
    "the engine's log-probabilities; the cap is of the authors' code. Its own training: lr 1e-5, 32 "
    "questions a step.",
)]  # fmt: skip

"""TCOD, front to back (arXiv 2604.24005): conversations are cut short at first and grow with the steps."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    start: int = Field(1, ge=1, description="turns played at the very beginning")
    every: int = Field(2, ge=1, description="steps after which one more turn is played")


def plan(s: Settings) -> "parts.Plan":
    play = Play(turns=lambda step: s.start + step // s.every)
    term = parts.Term("turns", parts.sharded, parts.clean, scoring.forward_kl(), turns=parts.summed)
    return parts.Plan((play,), (term,))


METHODS = [Method(
    name="tcod", title="TCOD: a curriculum of turn depth, front to back",
    summary="Plays and trains the first k turns only, k one more every second step, by forward KL.",
    paper="TCOD, arXiv 2604.24005", section=Settings, plan=plan, group="related",
    formula="k = min(1 + floor(step/2), T); L = sum over t < k of KL(T||S) of turn t.",
    choices="Teacher: the EMA under the clean context (theirs: a larger model under the same history). A "
    "turn's KL is the mean over its tokens. A conversation cut short has no verdict, no answer turn. At k = "
    "1 both contexts are the same, so only a lagging average teaches. Back to front would need conversations "
    "of the teacher's. No replay.",
)]  # fmt: skip

"""SDFT (arXiv 2601.19897): divergence to the average student that has seen a demonstration."""

from smopd.methods import Field, Method, Play, Section, parts, scoring


class Settings(Section):
    beta: float = Field(1.0, ge=0, le=1, description="1 = reverse KL (the paper), 0 = forward KL (its code)")


def plan(s: Settings) -> "parts.Plan":
    term = parts.Term("distil", parts.sharded, parts.with_reference, scoring.gjs(s.beta))
    return parts.Plan((Play(),), (term,))


METHODS = [Method(
    name="sdft", title="SDFT: the student that saw the answer, averaged",
    summary="Reverse KL to the averaged student under the clean context and the reference answer.",
    paper="SDFT, arXiv 2601.19897", section=Settings, plan=plan, group="related",
    formula="L = (1/|y|) sum KL(S || T), T: the EMA after the clean context and the reference answer.",
    choices="The paper's teacher sees an expert's demonstration, ours the reference answer; examples without "
    "one are left out. The decay of the average is the recipe's. The released code takes forward KL "
    "(objective.beta=0) and leaves out a reply's first three tokens; here as the paper has it.",
)]  # fmt: skip

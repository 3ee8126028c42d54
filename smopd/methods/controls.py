"""The controls the SMOPD paper asks for in its section on mechanism scope and did not run, and the cap that
keeps its direction.

Each differs from `entropy` in one setting, so a study that sets it beside `entropy` and `baseline` says which
part of the mask matters: the choice of tokens, their number, or the scale of the loss.
"""

from smopd.methods import Method
from smopd.methods.smopd import PAPER

SCOPE = f"{PAPER}, section 6.1"
ENTROPY = {"objective.keep": 0.8, "objective.eta": 0.0}

METHODS = [
    Method(
        name="random-mask",
        title="Control: random mask",
        summary="Keeps 80% of a middle reply's tokens, drawn at random: as many as `entropy` keeps, without its choice.",
        paper=SCOPE,
        settings=ENTROPY | {"objective.ranking": "random"},
    ),
    Method(
        name="divergence-mask",
        title="Control: divergence-ranked mask",
        summary="Keeps the 80% of a middle reply's tokens on which student and teacher differ most.",
        paper=SCOPE,
        settings=ENTROPY | {"objective.ranking": "divergence"},
    ),
    Method(
        name="inverted-mask",
        title="Control: inverted mask",
        summary="Drops the 20% of a middle reply's tokens with the highest entropy, instead of the lowest.",
        paper=SCOPE,
        settings=ENTROPY | {"objective.ranking": "inverted"},
    ),
    Method(
        name="fixed-denominator",
        title="Control: entropy mask with a fixed denominator",
        summary="The mask of `entropy`, but a reply's loss is divided by all tokens: the kept ones count no more than before.",
        paper=SCOPE,
        settings=ENTROPY | {"objective.denominator": "all"},
    ),
    Method(
        name="clip-scale",
        title="SMOPD with a cap that keeps the gradient's direction",
        summary="The mask of `entropy`; a token over the cap counts as the cap and keeps its gradient's direction, not none.",
        paper=f"no paper; the cap of {PAPER}, section 4.1, has no gradient above it",
        settings=ENTROPY | {"objective.clip_mode": "scale"},
    ),
]

"""The controls the SMOPD paper asks for in its section on mechanism scope and did not run.

Each differs from `entropy` in one setting, so a study that sets it beside `entropy` and `baseline` says which
part of the mask matters: the choice of tokens, their number, or the scale of the loss.
"""

from smopd.methods.smopd import PAPER, method

SCOPE = f"{PAPER}, section 7.1"
ENTROPY = {"keep": 0.8, "eta": 0.0}

METHODS = [
    method("random-mask", "Control: random mask",
           "Keeps 80% of a middle reply's tokens, drawn at random: as many as `entropy`, without its choice.",
           SCOPE, "controls", **ENTROPY, ranking="random"),
    method("divergence-mask", "Control: divergence-ranked mask",
           "Keeps the 80% of a middle reply's tokens on which student and teacher differ most.",
           SCOPE, "controls", **ENTROPY, ranking="divergence"),
    method("inverted-mask", "Control: inverted mask",
           "Drops the 20% of a middle reply's tokens with the highest entropy, instead of the lowest.",
           SCOPE, "controls", **ENTROPY, ranking="inverted"),
    method("fixed-denominator", "Control: entropy mask with a fixed denominator",
           "The mask of `entropy`, but a reply's loss is divided by all tokens: kept ones count no more.",
           SCOPE, "controls", **ENTROPY, denominator="all"),
]  # fmt: skip

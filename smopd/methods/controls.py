"""Methods that differ from `entropy` in one part each: a study that sets them beside `entropy` and `baseline`
says which part matters.

First the controls that the SMOPD paper asks for in its section on mechanism scope and did not run: the choice
of tokens, their number, the scale of the loss. Then candidates of ours, without a paper behind them: other
caps (the paper's leaves a token above it, on which student and teacher differ most, without any gradient),
another ranking of the mask, another sum of the terms.

Most tokens cost next to nothing: on the pocket task a middle reply's median is 6e-5 nats, an answer's 6e-4. A
cap of 3,000 medians is passed by about as many tokens as 0.5 nats (5% and 4%), but by 6% in middle turns and
3% in answers instead of 1.5% and 13%.
"""

from smopd.methods.smopd import PAPER, method

SCOPE = f"{PAPER}, section 7.1"
CAP = f"no paper; the cap of {PAPER}, section 4.1, has no gradient above it"
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
    method("clip-scale", "SMOPD with a cap that keeps the gradient's direction",
           "The mask of `entropy`; a token over the cap counts as the cap and keeps its direction.",
           CAP, "ours", **ENTROPY, clip_mode="scale"),
    method("soft-cap", "SMOPD with a cap that is never reached",
           "The mask of `entropy`; a cost d counts c log(1 + d/c), so its gradient is 1/(1 + d/c), never 0.",
           CAP, "ours", **ENTROPY, clip_mode="soft"),
    method("relative-cap", "SMOPD with a cap relative to the reply",
           "The mask of `entropy`; no gradient above 3,000 times the median cost of the reply's tokens.",
           CAP, "ours", **ENTROPY, clip_mode="relative"),
    method("soft-or", "SMOPD with a mask by entropy or divergence",
           "Keeps the 80% of a middle reply's tokens with the highest h + d - hd of entropy and divergence, "
           "each scaled over the reply: certain tokens stay where student and teacher differ.",
           "no paper; the ranking of TIP, arXiv 2604.14084, in place of the entropy of " + PAPER,
           "ours", **ENTROPY, ranking="soft-or"),
    method("balanced", "SMOPD without a cap, its terms balanced",
           "The mask of `entropy` and no cap; each term's gradient is scaled to the mean of their norms.",
           "no paper; beside an uncapped answer loss the bounded middle loss of " + PAPER + " is hardly felt",
           "ours", **ENTROPY, balance=True),
]  # fmt: skip

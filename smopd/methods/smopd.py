"""The four configurations of the SMOPD paper (arXiv 2608.14647, section 5.4), which differ in two numbers.

`objective.keep` is the paper's beta (the share of highest-entropy tokens of a middle reply that stay in the
loss) and `objective.eta` its eta (how far the final outcome moves a turn's weight). Left out: everything the
four have in common, the reliability weight included, which is a default of the config tree; and other
systems, which get files of their own.
"""

from smopd.methods import Method

PAPER = "SMOPD, arXiv 2608.14647"

METHODS = [
    Method(
        name="baseline",
        title="Clean-teacher, dirty-student self-distillation",
        summary="Every token of a middle reply counts; turns are weighted by the reliability proxy alone.",
        paper=f"{PAPER}, sections 4.1 and 5.4, table 2",
        settings={"objective.keep": 1.0, "objective.eta": 0.0},
    ),
    Method(
        name="entropy",
        title="SMOPD: token-level entropy masking",
        summary="Keeps the 80% of a middle reply's tokens where the student is least certain, after the first third of training.",
        paper=f"{PAPER}, section 4.2, equations 4 and 5, table 2",
        settings={"objective.keep": 0.8, "objective.eta": 0.0},
    ),
    Method(
        name="outcome",
        title="Outcome-guided turn weighting",
        summary="Multiplies a middle turn's weight by 1.2 when the final answer is wrong and by 0.8 when it is right.",
        paper=f"{PAPER}, section 4.3, equation 8, table 2",
        settings={"objective.keep": 1.0, "objective.eta": 0.2},
    ),
    Method(
        name="combined",
        title="Entropy masking and outcome weighting together",
        summary="The entropy mask of `entropy` and the outcome scalar of `outcome` in one loss.",
        paper=f"{PAPER}, sections 4.2 and 4.3, equation 9, tables 2 and 4",
        settings={"objective.keep": 0.8, "objective.eta": 0.2},
    ),
]

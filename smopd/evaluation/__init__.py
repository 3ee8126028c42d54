"""Accuracy: verifiers, the FULL and SHARDED protocols, intervals and paired comparisons."""

from smopd.evaluation.evaluate import Outcome, evaluate, judge, summarise
from smopd.evaluation.statistics import Paired, paired, wilson
from smopd.evaluation.verifiers import Verdict, verify

__all__ = ["Outcome", "Paired", "Verdict", "evaluate", "judge", "paired", "summarise", "verify", "wilson"]

"""A training set over four domains from raw public files: read, rid of overlaps, sharded, verified, chosen,
described.
"""

from smopd.data.training_set.compose import DOMAINS, TOTAL, Built, Plan, build, write

__all__ = ["DOMAINS", "TOTAL", "Built", "Plan", "build", "write"]

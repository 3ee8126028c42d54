"""Token statistics: packed student and teacher passes over the same replies, and the fused per-token
divergence.
"""

from smopd.scoring.divergence import token_divergence
from smopd.scoring.stats import TokenStats
from smopd.scoring.tree import PrefixTree

__all__ = ["PrefixTree", "TokenStats", "token_divergence"]

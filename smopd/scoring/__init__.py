"""Token statistics: student and teacher passes over the same replies, and the per-token divergence."""

from smopd.scoring.divergence import TokenStats, token_divergence

__all__ = ["TokenStats", "token_divergence"]

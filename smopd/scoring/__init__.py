"""Token statistics: packed student and teacher passes over the same replies, row losses, and the fused kernel."""

from smopd.scoring.kernel import token_divergence, token_stats
from smopd.scoring.losses import (
    RowLoss,
    Rows,
    drkl,
    forward_kl,
    gjs,
    reverse_kl,
    row_loss,
    sampled_nll,
    top_k_forward_kl,
)
from smopd.scoring.stats import Decision, TokenStats
from smopd.scoring.tree import PrefixTree

__all__ = [
    "Decision", "PrefixTree", "RowLoss", "Rows", "TokenStats", "drkl", "forward_kl", "gjs", "reverse_kl", "row_loss",
    "sampled_nll", "token_divergence", "token_stats", "top_k_forward_kl",
]  # fmt: skip

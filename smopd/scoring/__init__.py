"""Token statistics: packed student and teacher passes over the same replies, row losses, and the fused kernel.

Names are looked up when they are first asked for: a method's declaration needs no torch.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
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
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.scoring.kernel": ("token_divergence", "token_stats"),
        "smopd.scoring.losses": (
            "RowLoss", "Rows", "drkl", "forward_kl", "gjs", "reverse_kl", "row_loss", "sampled_nll", "top_k_forward_kl",
        ),
        "smopd.scoring.stats": ("Decision", "TokenStats"),
        "smopd.scoring.tree": ("PrefixTree",),
    },
)  # fmt: skip

"""Log-probabilities of given tokens alone, without gradient: one product, chunk of rows by chunk of rows."""

import torch

from smopd.scoring.plain import cap_of, capped
from smopd.scoring.products import wide_dtype, wide_linear

CHUNK_BYTES = 200_000_000  # for the logits of a chunk


@torch.no_grad()
def sampled_logps(
    hidden: torch.Tensor, lm_head_weight: torch.Tensor, tokens: torch.Tensor, chunk_size: int | None = None
) -> torch.Tensor:
    """[N] log-probabilities of `tokens` from hidden states [N, d] and a head [V, d], in float32 at least."""
    wide = wide_dtype(hidden.dtype)
    size = chunk_size or max(1, CHUNK_BYTES // (lm_head_weight.shape[0] * wide.itemsize))
    found = [hidden.new_empty(0, dtype=wide)]
    for rows, sampled in zip(hidden.split(size), tokens.split(size), strict=True):
        logits = capped(wide_linear(rows, lm_head_weight), cap_of(lm_head_weight))
        found.append(logits.gather(-1, sampled[:, None])[:, 0] - logits.logsumexp(-1))
    return torch.cat(found)

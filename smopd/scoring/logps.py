"""Log-probabilities of given tokens alone, without gradient: one product, chunk of rows by chunk of rows."""

import torch
import torch.nn.functional as F

from smopd.scoring.plain import cap_of, capped

CHUNK_BYTES = 200_000_000  # for the logits of a chunk


@torch.no_grad()
def sampled_logps(
    hidden: torch.Tensor, lm_head_weight: torch.Tensor, tokens: torch.Tensor, chunk_size: int | None = None
) -> torch.Tensor:
    """[N] log-probabilities of `tokens` from hidden states [N, d] and a head [V, d], in float32 at least."""
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    size = chunk_size or max(1, CHUNK_BYTES // (lm_head_weight.shape[0] * wide.itemsize))
    found = [hidden.new_empty(0, dtype=wide)]
    for rows, sampled in zip(hidden.split(size), tokens.split(size), strict=True):
        logits = capped(
            F.linear(rows.to(lm_head_weight.dtype), lm_head_weight).to(wide), cap_of(lm_head_weight)
        )
        found.append(logits.gather(-1, sampled[:, None])[:, 0] - logits.logsumexp(-1))
    return torch.cat(found)

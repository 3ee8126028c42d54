"""The likeliest next tokens beside the one that was sampled, and a reply's statistics under one model alone.

Both are made of a chunk of logits at a time, so that no [N, V] tensor lives longer than its chunk.
Shapes: N reply tokens, n rows of a chunk, k likeliest tokens, V vocabulary.
"""

from typing import NamedTuple

import torch

from smopd.scoring.plain import cap_of, capped
from smopd.scoring.products import wide_dtype, wide_linear

CHUNK_BYTES = 200_000_000  # for the logits of a chunk


class Top(NamedTuple):
    """The k likeliest tokens of each row, the likeliest first."""

    tokens: torch.Tensor  # [N, k] ids
    logps: torch.Tensor  # [N, k] their log-probabilities


class Highest(NamedTuple):
    """The highest logits of a chunk, taken before anybody writes over them."""

    tokens: torch.Tensor  # [n, k]
    above: torch.Tensor  # [n, k] how far each is above the sampled token's logit

    def with_logp(self, sampled: torch.Tensor) -> Top:
        """Their log-probabilities, from that of the sampled token: the normaliser is the same."""
        return Top(self.tokens, self.above + sampled[:, None])


def highest(
    logits_nV: torch.Tensor, tokens_n: torch.Tensor, count: int, softcap: float | None = None
) -> Highest:
    """The `count` highest of uncapped logits; a soft cap keeps their order."""
    values, ids = logits_nV.topk(min(count, logits_nV.shape[1]), -1)
    sampled = logits_nV.gather(-1, tokens_n[:, None])
    return Highest(ids, capped(values, softcap) - capped(sampled, softcap))


class TokenProfile(NamedTuple):
    """What one model says of reply tokens, one row a token."""

    logp: torch.Tensor  # [N] of the token
    entropy: torch.Tensor  # [N] nats
    top: Top


@torch.no_grad()
def token_profile(
    hidden: torch.Tensor, lm_head_weight: torch.Tensor, tokens: torch.Tensor, count: int
) -> TokenProfile:
    """What hidden states [N, d] and a head [V, d] say of `tokens`, with the `count` likeliest at each."""
    wide = wide_dtype(hidden.dtype)
    size = max(1, CHUNK_BYTES // (lm_head_weight.shape[0] * wide.itemsize))
    none = hidden.new_empty(0, dtype=wide)
    logps, entropies, ids, values = [none], [none], [], []
    for rows, sampled in zip(hidden.split(size), tokens.split(size), strict=True):
        log_p = capped(wide_linear(rows, lm_head_weight), cap_of(lm_head_weight)).log_softmax(-1)
        logps.append(log_p.gather(-1, sampled[:, None])[:, 0])
        entropies.append(log_p.exp().mul_(log_p).sum(-1).neg_())
        best = log_p.topk(min(count, log_p.shape[1]), -1)
        ids.append(best.indices)
        values.append(best.values)
    return TokenProfile(torch.cat(logps), torch.cat(entropies), Top(torch.cat(ids), torch.cat(values)))

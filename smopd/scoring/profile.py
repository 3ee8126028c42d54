"""What one model alone says of reply tokens, without gradient: one product, chunk of rows by chunk of rows.

Shapes: N reply tokens, d width, k likeliest tokens, V vocabulary, n rows of a chunk.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from smopd.scoring.plain import cap_of, capped
from smopd.scoring.products import wide_dtype, wide_linear

CHUNK_BYTES = 200_000_000  # for the logits of a chunk


class TokenProfile(NamedTuple):
    logp: torch.Tensor  # [N] of the token
    entropy: torch.Tensor  # [N] nats
    top_tokens: torch.Tensor  # [N, k] ids, the likeliest first
    top_logps: torch.Tensor  # [N, k]


@torch.no_grad()
def token_profile(
    hidden: torch.Tensor, lm_head_weight: torch.Tensor, tokens: torch.Tensor, count: int
) -> TokenProfile:
    """What hidden states [N, d] and a head [V, d] say of `tokens`, with the `count` likeliest at each."""
    chunks = []
    for logits, sampled in _chunks(hidden, lm_head_weight, tokens):
        log_p = logits.log_softmax(-1)
        best = log_p.topk(min(count, log_p.shape[1]), -1)
        entropy = log_p.exp().mul_(log_p).sum(-1).neg_()
        chunks.append((log_p.gather(-1, sampled)[:, 0], entropy, best.indices, best.values))
    return TokenProfile(*map(torch.cat, zip(*chunks, strict=True)))


@torch.no_grad()
def sampled_logps(
    hidden: torch.Tensor, lm_head_weight: torch.Tensor, tokens: torch.Tensor, chunk_size: int | None = None
) -> torch.Tensor:
    """[N] log-probabilities of `tokens` from hidden states [N, d] and a head [V, d], in float32 at least."""
    chunks = _chunks(hidden, lm_head_weight, tokens, chunk_size)
    return torch.cat([z.gather(-1, sampled)[:, 0] - z.logsumexp(-1) for z, sampled in chunks])


def _chunks(
    hidden: torch.Tensor, weight: torch.Tensor, tokens: torch.Tensor, size: int | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits [n, V] and sampled tokens [n, 1] of one chunk after the other."""
    size = size or max(1, CHUNK_BYTES // (weight.shape[0] * wide_dtype(hidden.dtype).itemsize))
    for rows, sampled in zip(hidden.split(size), tokens.split(size), strict=True):
        yield capped(wide_linear(rows, weight), cap_of(weight)), sampled[:, None]

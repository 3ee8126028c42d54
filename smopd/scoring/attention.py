"""Attention over a packed prefix tree in which a token is only ever compared with its own ancestors: what a
CPU computes, and a GPU where `flex` is not available.

A mask over the packed row computes every pair of tokens and throws most of them away: of a row of 2,048
tokens an average token sees a few hundred. Here each unbranched run of tokens (a segment) attends to the runs
above it and to itself, so the work is that of the separate sequences with their shared prefixes counted once.

`install` replaces transformers' "sdpa" by a function that hands on to it whatever asks for nothing of this
file or of `flex`. Beside a tree the mask is passed all the same: what ignores the tree is slower, not wrong.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from smopd.scoring import flex
from smopd.scoring.tree import QUERIES, Segment


def install() -> None:
    """Let every model with "sdpa" attention take `prefix_tree` and `shared_heads`."""
    AttentionInterface.register("sdpa", tree_or_sdpa_attention)


def tree_or_sdpa_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | BlockMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    prefix_tree: list[Segment] | None = None,
    shared_heads: bool = False,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' "sdpa", or what a call asks for: a block mask, `prefix_tree` or `shared_heads`."""
    if isinstance(attention_mask, BlockMask):
        assert not dropout, "flex_attention has no dropout"
        output = flex.attend(query, key, value, attention_mask, scaling)
    elif shared_heads and attention_mask is not None:
        output = shared_attention(query, key, value, attention_mask, scaling)
    elif prefix_tree is not None:
        output = tree_attention(query, key, value, prefix_tree, dropout, scaling)
    else:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    return output.transpose(1, 2).contiguous(), None


def tree_attention(
    query: torch.Tensor,  # [1, H, L, D]
    key: torch.Tensor,  # [1, K, L, D], K divides H
    value: torch.Tensor,
    segments: list[Segment],
    dropout: float = 0.0,
    scaling: float | None = None,
) -> torch.Tensor:
    """[1, H, L, D] of one packed row."""
    heads, kv_heads, width = query.shape[1], key.shape[1], query.shape[-1]
    group = heads // kv_heads
    lengths = [segment.stop - segment.start for segment in segments]
    blocks = [[min(QUERIES, length - first) for first in range(0, length, QUERIES)] for length in lengths]
    # Splitting once and joining runs, rather than picking rows, keeps the backward pass to the rows that were
    # used. A group's queries stand one after the other before the head they share, which is not repeated.
    keys, values = key.split(lengths, dim=2), value.split(lengths, dim=2)
    counts = [count for of_segment in blocks for count in of_segment]
    queries = iter(query.view(kv_heads, group, -1, width).split(counts, dim=2))
    outputs = []
    for number, segment in enumerate(segments):
        path = [*segment.ancestors, number]
        path_keys, path_values = (torch.cat([runs[k] for k in path], dim=2) for runs in (keys, values))
        seen = path_keys.shape[2] - lengths[number]
        for count in blocks[number]:
            seen += count
            # Which of `seen` tokens the last `count` of them see.
            causal = torch.ones(count, seen, dtype=torch.bool, device=query.device).tril_(seen - count)
            out = F.scaled_dot_product_attention(
                next(queries).reshape(1, kv_heads, group * count, width),
                path_keys[:, :, :seen],
                path_values[:, :, :seen],
                attn_mask=causal.repeat(group, 1),
                dropout_p=dropout,
                scale=scaling,
            )
            outputs.append(out.view(kv_heads, group, count, out.shape[-1]))
    return torch.cat(outputs, dim=2).flatten(0, 1)[None]


def shared_attention(
    query: torch.Tensor,  # [B, H, Q, D]
    key: torch.Tensor,  # [B, K, C, D], K divides H
    value: torch.Tensor,
    mask: torch.Tensor,  # [B, 1, Q, C]
    scaling: float | None = None,
) -> torch.Tensor:
    """[B, H, Q, D] without repeating keys and values for the queries that share them."""
    batch, heads, length, width = query.shape
    kv_heads = key.shape[1]
    folded = query.reshape(batch, kv_heads, heads // kv_heads * length, width)
    out = F.scaled_dot_product_attention(
        folded, key, value, mask.repeat(1, 1, heads // kv_heads, 1), scale=scaling
    )
    return out.view(batch, heads, length, out.shape[-1])

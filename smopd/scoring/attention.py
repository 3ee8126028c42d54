"""Attention over a packed prefix tree in which a token is only ever compared with its own ancestors: what a
CPU computes, and a GPU where `flex` is not available.

A mask over the packed row computes every pair of tokens and throws most of them away: of a row of 2,048
tokens an average token sees a few hundred. Here each unbranched run of tokens (a segment) attends to the runs
above it and to itself, so the work is that of the separate sequences with their shared prefixes counted once.

`install` replaces transformers' "sdpa" by a function that hands on to it whatever asks for nothing of this
file or of `flex`. Beside a tree the mask is passed all the same: what ignores the tree is slower, not wrong.
"""

from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from smopd.scoring import flex
from smopd.scoring.tree import QUERIES, Segment


def install() -> None:
    """Let every model with "sdpa" attention take `prefix_tree` and `shared_heads`."""
    AttentionInterface.register("sdpa", tree_or_sdpa_attention)


def tree_or_sdpa_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
    attention_mask: Tensor | BlockMask | None, dropout: float = 0.0, scaling: float | None = None,
    prefix_tree: list[Segment] | None = None, shared_heads: bool = False, **kwargs: Any,
) -> tuple[Tensor, None]:  # fmt: skip
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
    query: Tensor, key: Tensor, value: Tensor, segments: list[Segment],
    dropout: float = 0.0, scaling: float | None = None,
) -> Tensor:  # fmt: skip
    """[1, H, L, D] of one packed row, from queries like that, keys and values [1, K, L, D]; K divides H."""
    kv_heads, width = key.shape[1], query.shape[-1]
    group = query.shape[1] // kv_heads
    lengths = [segment.stop - segment.start for segment in segments]
    blocks = [[min(QUERIES, length - first) for first in range(0, length, QUERIES)] for length in lengths]
    # Splitting once and joining runs, rather than picking rows, keeps the backward pass to the rows that were
    # used. A group's queries stand one after the other before the head they share, which is not repeated.
    keys, values = key.split(lengths, dim=2), value.split(lengths, dim=2)
    queries = iter(query.view(kv_heads, group, -1, width).split([*chain(*blocks)], dim=2))
    outputs = []
    for number, segment in enumerate(segments):
        path = [*segment.ancestors, number]
        path_keys, path_values = (torch.cat([runs[k] for k in path], dim=2) for runs in (keys, values))
        seen = path_keys.shape[2] - lengths[number]
        for count in blocks[number]:
            seen += count
            # Which of `seen` tokens the last `count` of them see.
            causal = torch.ones(count, seen, dtype=torch.bool, device=query.device).tril_(seen - count)
            block = next(queries).reshape(1, kv_heads, group * count, width)
            keys_seen, values_seen = path_keys[:, :, :seen], path_values[:, :, :seen]
            mask = causal.repeat(group, 1)
            out = F.scaled_dot_product_attention(block, keys_seen, values_seen, mask, dropout, scale=scaling)
            outputs.append(out.view(kv_heads, group, count, out.shape[-1]))
    return torch.cat(outputs, dim=2).flatten(0, 1)[None]


def shared_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None
) -> Tensor:
    """[B, H, Q, D] from queries like that, keys and values [B, K, C, D] and a mask [B, 1, Q, C], without
    repeating keys and values for the H / K queries that share them.
    """
    batch, heads, length, width = query.shape
    group = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], group * length, width)
    out = F.scaled_dot_product_attention(folded, key, value, mask.repeat(1, 1, group, 1), scale=scaling)
    return out.view(batch, heads, length, out.shape[-1])

"""Attention over a packed prefix tree on a GPU: flex_attention, compiled, with one block mask a row.

A row is padded to one of few lengths, and its block mask is read off the tree's subtree ends: no [L, L] mask
is ever made. torch compiles once for the first length and once for all others; both happen in `works`, which
compares with SDPA. Where that fails, `attention.tree_attention` computes the same segment by segment.
Shapes: H query heads, K key/value heads, L tokens of a row, D head width, n blocks of a row.
"""

import logging
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils._triton import has_triton

from smopd.scoring.tree import BLOCK, SMALLEST, PrefixTree, upload
from smopd.scoring.tree import bucket as bucket

log = logging.getLogger("smopd")
TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 4e-2, torch.float16: 1e-2}  # float32 products may be TF32


def block_mask(tree: PrefixTree, moved: PrefixTree) -> BlockMask:
    """The mask of a row of whole blocks on the CPU, and `moved` to the device where the mask is needed."""
    ends_nB = tree.subtree_end.numpy(force=True).reshape(-1, BLOCK)
    first_n = np.arange(len(ends_nB)) * BLOCK
    earlier_nn = first_n < first_n[:, None]  # every key of the column stands before every query of the row
    seen_nn = earlier_nn & (ends_nB.max(1) > first_n[:, None])
    full_nn = earlier_nn & (ends_nB.min(1) >= first_n[:, None] + BLOCK)
    partial_nn = (seen_nn & ~full_nn) | np.eye(len(first_n), dtype=bool)  # a token sees itself
    blocks: dict[str, Any] = {}
    kinds = {"kv": partial_nn, "full_kv": full_nn, "q": partial_nn.T, "full_q": full_nn.T}
    for name, wanted_nn in kinds.items():
        counts_n = wanted_nn.sum(1)
        first_nn = np.argsort(~wanted_nn, axis=1, kind="stable")  # the wanted blocks of a row stand first
        for what, array in (("num_blocks", counts_n), ("indices", first_nn)):
            # Tensors of their own: parts of one have offsets, and torch compiles anew for other offsets.
            tensor = torch.from_numpy(array.astype(np.int32))[None, None]
            blocks[f"{name}_{what}"] = upload(tensor, moved.input_ids.device)
    lengths = (len(tree.input_ids), len(tree.input_ids))
    return BlockMask(seq_lengths=lengths, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=moved.mask_mod(), **blocks)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scaling: float | None = None
) -> Tensor:
    """[1, H, L, D] of one packed row, from queries like that, keys and values [1, K, L, D]; K divides H.
    Compiled, except on the CPU, where only the forward pass exists.
    """
    function: Any = flex_attention if query.device.type == "cpu" else _compile()
    gqa = query.shape[1] != key.shape[1]
    output: Tensor = function(query, key, value, block_mask=mask, scale=scaling, enable_gqa=gqa)
    return output


@cache
def _compile() -> Any:
    return torch.compile(flex_attention)


def compilable(device_type: str, dtype: torch.dtype, width: int) -> bool:
    """Whether flex_attention exists, forward and backward, for heads of this width and type on a device."""
    return device_type == "cuda" and dtype in TOLERANCE and width >= 16


def compiler_there() -> bool:
    """Whether torch compiles for this machine's GPU; TORCHDYNAMO_DISABLE=1 in the environment says no."""
    return has_triton() and not torch._dynamo.config.disable


@cache
def works(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, width: int) -> bool:
    """Whether torch compiles here and gives what SDPA gives, in value and gradient; if not, a warning."""
    if not compiler_there():
        log.warning("torch does not compile here: scoring continues without flex_attention, slower")
        return False
    try:
        # Two lengths, because torch compiles for any length when it meets a second one.
        cases = product((SMALLEST, SMALLEST + BLOCK), (True, False))
        error = max(_error(*case, device, dtype, (heads, kv_heads, width)) for case in cases)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # whatever torch's compiler, Triton or the driver may raise
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    else:
        if error <= TOLERANCE[dtype]:
            return True
        reason = f"its result differs from SDPA's by {error:.2g}"
    log.warning("flex_attention does not work here (%s): scoring continues without it, slower", reason)
    return False


def _error(
    length: int, gradient: bool, device: torch.device, dtype: torch.dtype, shape: tuple[int, int, int]
) -> float:
    """The largest difference to SDPA in output and gradients on a small tree, relative to their largest."""
    heads, kv_heads, width = shape
    branches = [[1, *[2] * (length // 2), *[branch] * (length // 8)] for branch in (3, 4, 5)]
    tree = PrefixTree.pack(branches).padded(length)
    moved = tree.to(device)
    g = torch.Generator().manual_seed(length)
    query, key, value, weight = (
        torch.randn(1, count, length, width, generator=g).to(device, dtype).requires_grad_(gradient)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    mask, dense = block_mask(tree, moved), moved.attention_mask()
    with torch.set_grad_enabled(gradient):
        ours = attend(query, key, value, mask)
        keys, values = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (key, value))
        theirs = F.scaled_dot_product_attention(query, keys, values, attn_mask=dense)
    pairs = [(ours, theirs)]
    if gradient:
        inputs = (query, key, value)
        both = [torch.autograd.grad((out * weight.detach()).sum(), inputs) for out in (ours, theirs)]
        pairs += zip(*both, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)

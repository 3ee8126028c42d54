"""Products with the head in float32 at least, whatever the model's numbers are (float64 stays float64).

Logits that are rounded to bfloat16 have an error of up to 2^-8 of their size: 0.06 at a logit of 20, in which
smaller differences of student and teacher are lost. So logits are accumulated and kept in float32: by CUDA's
own product with `out_dtype`, elsewhere by an upcast of the head's weight, a tile of the vocabulary at a time,
since a float32 copy of a whole head may not fit. Shapes: n rows, d width, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

# Of the head's weight in float32 at once: little beside a chunk's logits. On a device a tile is a launch.
CPU_TILE_BYTES, DEVICE_TILE_BYTES = 1 << 26, 1 << 28


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What is computed in: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def logits_into(out_nV: torch.Tensor, hidden_nd: torch.Tensor, weight_Vd: torch.Tensor) -> None:
    """The logits of hidden states, accumulated and kept in the type of `out_nV`."""
    if hidden_nd.dtype == weight_Vd.dtype == out_nV.dtype:
        torch.mm(hidden_nd, weight_Vd.T, out=out_nV)
    elif hidden_nd.dtype == weight_Vd.dtype and hidden_nd.is_cuda:
        torch.mm(hidden_nd, weight_Vd.T, out_dtype=out_nV.dtype, out=out_nV)
    else:
        wide_nd = hidden_nd.to(out_nV.dtype)
        for tile in _tiles(weight_Vd, out_nV.dtype):
            torch.mm(wide_nd, weight_Vd[tile].to(out_nV.dtype).T, out=out_nV[:, tile])


def by_hidden_states(slope_nV: torch.Tensor, weight_Vd: torch.Tensor) -> torch.Tensor:
    """[n, d] gradient by hidden states from that by logits, accumulated and kept in the type of `slope_nV`.

    CUDA's product takes two operands of one type, so there the slope is rounded to the weight's. A row's
    entries sum to zero, and what all rows of the head have in common cancels less well then: on SmolLM2's
    head, whose mean has 0.68 of a row's norm, that is an error of 0.1%, and of 0.4% in the worst row.
    """
    if slope_nV.dtype == weight_Vd.dtype:
        return slope_nV @ weight_Vd
    if slope_nV.is_cuda and slope_nV.dtype == torch.float32:
        if weight_Vd.dtype == torch.bfloat16:
            return torch.mm(slope_nV.bfloat16(), weight_Vd, out_dtype=torch.float32)
        # float16 ends at 6e-8: rows are scaled to a largest entry of 1
        largest_n1 = slope_nV.abs().amax(-1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny)
        scaled_nV = (slope_nV / largest_n1).to(weight_Vd.dtype)
        return torch.mm(scaled_nV, weight_Vd, out_dtype=torch.float32).mul_(largest_n1)
    total_nd = slope_nV.new_zeros(slope_nV.shape[0], weight_Vd.shape[1])
    for tile in _tiles(weight_Vd, slope_nV.dtype):
        total_nd.addmm_(slope_nV[:, tile], weight_Vd[tile].to(slope_nV.dtype))
    return total_nd


def wide_linear(hidden_nd: torch.Tensor, weight_Vd: torch.Tensor) -> torch.Tensor:
    """[n, V] logits in float32 at least, with gradient to hidden states and weight."""
    wide = wide_dtype(hidden_nd.dtype)
    if hidden_nd.dtype == weight_Vd.dtype == wide:
        return F.linear(hidden_nd, weight_Vd)
    return _WideLinear.apply(hidden_nd, weight_Vd, wide)


class _WideLinear(torch.autograd.Function):
    """Autograd of an upcast would keep the float32 copies of all tiles."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        out = torch.empty(hidden.shape[0], weight.shape[0], dtype=wide, device=hidden.device)
        logits_into(out, hidden, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (hidden, weight), (slope_nV,) = ctx.saved_tensors, upstream
        by_hidden = by_weight = None
        if ctx.needs_input_grad[0]:
            by_hidden = by_hidden_states(slope_nV, weight).to(hidden.dtype)
        if ctx.needs_input_grad[1]:
            by_weight = torch.empty_like(weight)
            wide_nd = hidden.to(slope_nV.dtype)
            for tile in _tiles(weight, slope_nV.dtype):
                by_weight[tile] = slope_nV[:, tile].T @ wide_nd
        return by_hidden, by_weight, None


def _tiles(weight_Vd: torch.Tensor, wide: torch.dtype) -> Iterator[slice]:
    """Ranges of the vocabulary whose weight may be upcast at once."""
    allowed = CPU_TILE_BYTES if weight_Vd.device.type == "cpu" else DEVICE_TILE_BYTES
    size = max(1, allowed // (max(1, weight_Vd.shape[1]) * wide.itemsize))
    return (slice(i, i + size) for i in range(0, weight_Vd.shape[0], size))

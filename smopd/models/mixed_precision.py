"""Adapters compute in the type of the base and are kept in float32.

Optimizer, moving average and checkpoints need the float32 matrices; products do not. PEFT would cast the
activations of a bfloat16 base to float32 for them and add in float32, which moves twice the memory. Here the
small matrices are rounded instead, and autograd brings their gradients back to float32. In a float32 base
nothing is cast, and the bits are PEFT's own.
"""

from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners.lora import LoraLayer


class MasterLinear(torch.nn.Linear):
    """A linear layer whose weight is rounded to the type of its input, for the product alone."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return F.linear(input, self.weight.to(input.dtype), bias)


def compute_in_base_type(model: torch.nn.Module) -> None:
    """Let every adapter of a model compute in the type of the activations; its parameters do not change."""
    for layer in model.modules():
        # What is more than two matrices (DoRA) mixes them with the base weights, and casts as PEFT does.
        if not isinstance(layer, LoraLayer) or layer.lora_variant or not layer.lora_A:
            continue
        for matrices in (layer.lora_A, layer.lora_B):
            for name, linear in matrices.items():
                if type(linear) is torch.nn.Linear:
                    size = linear.in_features, linear.out_features, linear.bias is not None
                    master = MasterLinear(*size, device="meta")
                    master.weight, master.bias = linear.weight, linear.bias
                    matrices[name] = master.train(linear.training)
        if all(isinstance(m, MasterLinear) for m in (*layer.lora_A.values(), *layer.lora_B.values())):
            layer.cast_input_dtype_enabled = False


def base_type(model: torch.nn.Module) -> torch.dtype:
    """The type that a model computes in: that of its embeddings, whatever its quantised weights are."""
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    weight: torch.Tensor = base.get_input_embeddings().weight
    return weight.dtype

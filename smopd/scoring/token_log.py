"""Token statistics on disk: one safetensors file, a row a token.

Beside the columns stand, for each model that was asked, the likely tokens other than the one sampled: how
many of them a row has, and all of them one after the other. Only those of at least 1% are written, at most as
many as were asked for: where a model is sure there is nothing to write, and that is most of a reply.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import log
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError, safe_open

from smopd.errors import UserError
from smopd.files import write_bytes
from smopd.lazy import torch

Framework = Literal["pt", "numpy"]
LEAST = log(0.01)  # log-probability of an alternative that is worth writing
OTHERS = {"counts": "uint8", "tokens": "int32", "logps": "float16"}


class Others(NamedTuple):
    """The likely tokens other than the sampled ones, row after row, the likeliest first."""

    counts: Any  # [N] how many belong to a row
    tokens: Any  # [M] ids
    logps: Any  # [M]

    @classmethod
    def of(cls, tokens_N: torch.Tensor, top_tokens_Nk: torch.Tensor, top_logps_Nk: torch.Tensor) -> Others:
        """Those of the k likeliest that were not sampled and are worth writing."""
        worth = (top_tokens_Nk != tokens_N[:, None]) & (top_logps_Nk >= LEAST)
        columns = worth.sum(1), top_tokens_Nk[worth], top_logps_Nk[worth]
        kinds = (getattr(torch, kind) for kind in OTHERS.values())
        return cls(*(part.to(kind) for part, kind in zip(columns, kinds, strict=True)))


def write_tokens(
    path: Path, columns: Mapping[str, torch.Tensor], others: Mapping[str, Others], names: Mapping[str, Any]
) -> None:
    """Write the file, whole or not at all; `names` is what JSON can hold of what the numbers stand for."""
    from safetensors.torch import save

    tensors = {name: column.contiguous() for name, column in columns.items()}
    for model, alternatives in others.items():
        tensors |= {f"{model}_others/{name}": part for name, part in alternatives._asdict().items()}
    write_bytes(path, save(tensors, metadata={key: json.dumps(value) for key, value in names.items()}))


def read_tokens(
    path: Path, wanted: Iterable[str], named: Iterable[str], framework: Framework = "pt"
) -> tuple[dict[str, Any], dict[str, Others], dict[str, Any]]:
    """The columns `wanted`, every model's likely tokens, and all names, those `named` among them. Columns are
    tensors; with `framework="numpy"` they are arrays, and torch is not imported.
    """
    try:
        with safe_open(path, framework=framework) as file:
            names = {key: json.loads(value) for key, value in file.metadata().items()}
            columns = {name: file.get_tensor(name) for name in wanted}
            models = [key.removesuffix("_others/counts") for key in file.keys() if key.endswith("/counts")]  # noqa: SIM118
            others = {m: Others(*(file.get_tensor(f"{m}_others/{part}") for part in OTHERS)) for m in models}
        if missing := [key for key in named if key not in names]:
            raise ValueError(f"does not say its {missing[0]}")
        return columns, others, names
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: not a token log: {str(error).strip()}") from None

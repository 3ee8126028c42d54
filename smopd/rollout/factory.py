"""The engine that a config names."""

from collections.abc import Sequence
from pathlib import Path

import torch

from smopd.config import Config
from smopd.errors import UserError
from smopd.rollout.engine import Engine
from smopd.rollout.hf import HFEngine


def make_engine(config: Config, model: torch.nn.Module, end_ids: Sequence[int], batch: int, folder: Path) -> Engine:
    """Engine for training or evaluation; `folder` may be used for adapters on their way to it."""
    kind = config.engine.kind
    if kind == "hf":
        return HFEngine(model, end_ids, batch, config.engine.cache_mb)
    if kind == "vllm":
        from smopd.rollout.vllm_local import VLLMEngine

        return VLLMEngine(config, end_ids)
    if kind == "vllm-http":
        from smopd.rollout.vllm_http import VLLMServers

        return VLLMServers(config, end_ids, folder)
    raise UserError('engine.kind = "openai" has no token ids to train on: it is for evaluation')

"""The engine that a config names."""

from pathlib import Path

import torch

from smopd.chat import Renderer
from smopd.errors import UserError
from smopd.rollout.engine import Engine
from smopd.rollout.hf import HFEngine
from smopd.settings import Settings


def make_engine(
    config: Settings,
    renderer: Renderer,
    batch: int,
    folder: Path,
    model: torch.nn.Module | None = None,
    rank: int = 0,
) -> Engine:
    """Engine for training or evaluation.

    `model` is what the hf engine samples with; the others have weights of their own and are given adapters up
    to `rank` (0: none will come), on their way in `folder`.
    """
    kind = config.engine.kind
    if kind == "hf":
        assert model is not None
        return HFEngine(model, renderer.end_ids, batch, config.engine.cache_mb)
    if kind == "vllm":
        from smopd.rollout.vllm_local import VLLMEngine

        return VLLMEngine(config, renderer.end_ids, rank)
    if kind == "vllm-http":
        from smopd.rollout.vllm_http import VLLMServers

        return VLLMServers(config, renderer.end_ids, folder, renderer.encode, lora=rank > 0)
    raise UserError(
        "engine.kind: openai is for evaluation only (smopd eval); train with hf, vllm or vllm-http"
    )

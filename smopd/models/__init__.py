"""Models: loading a chat model with its template, and the two adapters that are student and teacher."""

from smopd.models.loading import (
    ChatModel,
    load_generation_config,
    load_model,
    load_renderer,
    lora_targets,
    resolve_adapter,
    weights_digest,
)

__all__ = [
    "ChatModel", "load_generation_config", "load_model", "load_renderer", "lora_targets", "resolve_adapter",
    "weights_digest",
]  # fmt: skip

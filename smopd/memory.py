"""What a run needs in memory, from the configs alone: weights, adapters, activations of the student pass, the head.

The activation count was read off saved tensors of Qwen3 and Llama bodies and holds within 10% there (a test measures it again).
It leaves out the rollout's key/value cache and whatever the allocator keeps in reserve.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from smopd.config import Config
from smopd.pocket import MODEL_DIR
from smopd.scoring.divergence import CHUNK_BYTES

FLOAT = 4
ADAPTER_COPIES = 5  # student, teacher, gradient, two moments, all in float32


def activation_floats(model: Any, rank: int, recompute: bool) -> int:
    """Numbers that the student pass keeps for backward, for each packed token."""
    d, layers, ff = model.hidden_size, model.num_hidden_layers, model.intermediate_size
    head = getattr(model, "head_dim", None) or d // model.num_attention_heads
    queries, keys = model.num_attention_heads * head, model.num_key_value_heads * head
    normed = 4 if "qwen3" in model.model_type or "gemma3" in model.model_type else 3  # with norms on queries and keys, or without
    layer = 7 * d + normed * (queries + keys) + 4 * ff + 7 * rank
    return layers * d + layer if recompute else layers * layer


def parameter_counts(model: Any, rank: int) -> tuple[int, int]:
    """(base, one adapter on the seven projections)."""
    d, ff, layers = model.hidden_size, model.intermediate_size, model.num_hidden_layers
    head = getattr(model, "head_dim", None) or d // model.num_attention_heads
    queries, keys = model.num_attention_heads * head, model.num_key_value_heads * head
    shapes = [(d, queries), (d, keys), (d, keys), (queries, d), (d, ff), (d, ff), (ff, d)]
    embeddings = model.vocab_size * d * (1 if model.tie_word_embeddings else 2)
    return embeddings + layers * sum(a * b for a, b in shapes), layers * sum(rank * (a + b) for a, b in shapes)


def estimate(config: Config) -> dict[str, float]:
    """Megabytes by part; activations for each 1,000 packed tokens of a micro-batch. Needs the model's config.json only."""
    path = MODEL_DIR if config.model.path == "pocket" else Path(config.model.path).expanduser()
    # A dry run waits for no network: what is not on this machine is not known.
    model = AutoConfig.from_pretrained(path if path.is_dir() else config.model.path, local_files_only=True).get_text_config()
    width = getattr(torch, config.model.dtype).itemsize
    base, adapter = parameter_counts(model, config.lora.r)
    floats = activation_floats(model, config.lora.r, config.train.recompute)
    return {
        "weights": base * width / 1e6,
        "adapters and optimizer": adapter * FLOAT * ADAPTER_COPIES / 1e6,
        "activations per 1,000 packed tokens": floats * 1000 * width / 1e6,
        "head, at most": (CHUNK_BYTES + 2 * 1000 * model.hidden_size * width) / 1e6,
    }


def memory_comment(config: Config) -> str:
    """The estimate as TOML comments, for --dry-run."""
    try:
        parts = estimate(config)
    except (OSError, ValueError, AttributeError) as error:
        return f"# memory: not known, the config of {config.model.path} cannot be read ({type(error).__name__})\n"
    return "# memory, MB: " + "; ".join(f"{name} {megabytes:,.0f}" for name, megabytes in parts.items()) + "\n"

"""The shape of a dense decoder: the few numbers of a config that memory and operations depend on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from smopd.config import Config
from smopd.errors import UserError
from smopd.files import check_shape, read_json
from smopd.models.loading import config_file, model_source

Names = Sequence[str]
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Shape:
    """A dense decoder. `normed`: queries and keys go through norms of their own (Qwen3, Gemma 3)."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    normed: bool

    @property
    def queries(self) -> int:
        """Width of all queries of a token."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all keys of a token, and of all values."""
        return self.kv_heads * self.head_dim

    def projections(self) -> dict[str, tuple[int, int]]:
        """(in, out) of the seven linear layers of a decoder layer."""
        d, q, k, ff = self.hidden, self.queries, self.keys, self.intermediate
        sizes = [(d, q), (d, k), (d, k), (q, d), (d, ff), (d, ff), (ff, d)]
        return dict(zip(PROJECTIONS, sizes, strict=True))

    @property
    def layer(self) -> int:
        """Weights of one layer's projections."""
        return sum(a * b for a, b in self.projections().values())

    @property
    def head(self) -> int:
        """Weights of the head, or of the embedding table."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights of the base."""
        norms = 2 * self.hidden + (2 * self.head_dim if self.normed else 0)
        return self.layers * (self.layer + norms) + self.hidden + self.head * (1 if self.tied else 2)

    def adapter(self, rank: int, targets: Names = PROJECTIONS) -> int:
        """Weights of one adapter on `targets`."""
        adapted = [a + b for name, (a, b) in self.projections().items() if name in targets]
        return self.layers * rank * sum(adapted)


def adapted_projections(config: Config) -> tuple[str, ...]:
    """The projections that get an adapter."""
    return PROJECTIONS if "all-linear" in config.lora.targets else tuple(config.lora.targets)


# Published numbers, for a machine without network; a pattern is matched against the last part of model.path.
SHAPES = {
    r"qwen3-0\.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936, True, True),
    r"qwen3-1\.7b": Shape(2048, 28, 16, 8, 128, 6144, 151936, True, True),
    r"qwen3-4b": Shape(2560, 36, 32, 8, 128, 9728, 151936, True, True),
    r"qwen3-8b": Shape(4096, 36, 32, 8, 128, 12288, 151936, False, True),
    r"qwen3-14b": Shape(5120, 40, 40, 8, 128, 17408, 151936, False, True),
    r"qwen3-32b": Shape(5120, 64, 64, 8, 128, 25600, 151936, False, True),
    r"(meta-)?llama-3(\.1)?-8b": Shape(4096, 32, 32, 8, 128, 14336, 128256, False, False),
    r"(meta-)?llama-3(\.[13])?-70b": Shape(8192, 80, 64, 8, 128, 28672, 128256, False, False),
}


# What `shape_of` reads. A config.json that says all of it, as most do, is read without transformers, whose
# import takes seconds; where it leaves something out, the defaults of its class count.
SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    "num_key_value_heads", "head_dim",
)  # fmt: skip
EXPLICIT = dict.fromkeys(SIZES, int) | {"model_type": str, "tie_word_embeddings": bool}


def _says_all(tree: Any) -> bool:
    """Not so of a model with code of its own: transformers knows its kind or does not."""
    said = isinstance(tree, dict) and "auto_map" not in tree
    return said and all(isinstance(tree.get(key), kind) for key, kind in EXPLICIT.items())


def shape_of(model: Any, name: str = "this config") -> Shape:
    """The shape of a transformers config, or of one's JSON; a UserError where it is no dense decoder's."""
    model = SimpleNamespace(**model) if isinstance(model, dict) else model.get_text_config()
    experts = getattr(model, "num_experts", None) or getattr(model, "num_local_experts", None)
    missing = [field for field in SIZES[:5] if not isinstance(getattr(model, field, None), int)]
    if missing or experts:
        why = f"it has no {missing[0]}" if missing else f"it has {experts} experts"
        raise UserError(f"{name}: not a dense decoder ({why}); smopd plan knows dense decoders only")
    heads = model.num_attention_heads
    kv_heads = getattr(model, "num_key_value_heads", None) or heads
    head_dim = getattr(model, "head_dim", None) or model.hidden_size // heads
    tied, normed = bool(model.tie_word_embeddings), model.model_type.startswith(("qwen3", "gemma3"))
    return Shape(model.hidden_size, model.num_hidden_layers, heads, kv_heads, head_dim,
                 model.intermediate_size, model.vocab_size, tied, normed)  # fmt: skip


def read_shape(path: Path) -> Shape:
    """The shape of a transformers config.json, or of a folder that holds one."""
    file = path / "config.json" if path.is_dir() else path
    advice = "give a transformers config.json, or the folder of a model that holds one"
    try:
        tree = read_json(file, kind="config.json")
        check_shape(tree, dict, str(file))
    except UserError as error:
        raise UserError(f"--model-config {error}; {advice}") from None
    if _says_all(tree):
        return shape_of(tree, str(path))
    from transformers import AutoConfig

    try:
        model = AutoConfig.for_model(**tree)
    except Exception as error:  # whatever transformers raises at values of the wrong kind
        why = (str(error).splitlines() or [type(error).__name__])[0]
        problem = f"transformers does not understand it ({why})"
        raise UserError(f"--model-config {path}: {problem}; {advice}") from None
    return shape_of(model, str(path))


def find_shape(config: Config) -> tuple[Shape, str]:
    """The shape of what `model.path` names, and where it was found. Waits for no network."""
    name, file = config.model.path, config_file(config)
    try:
        tree = read_json(file) if file else {}
        if _says_all(tree):
            return shape_of(tree, name), "its config"
        if file is None:
            raise FileNotFoundError
        from transformers import AutoConfig

        model = AutoConfig.from_pretrained(
            model_source(config), local_files_only=True, trust_remote_code=False
        )
    except Exception:  # not there, or not sound
        last = name.rstrip("/").rpartition("/")[2].lower()
        for pattern, shape in SHAPES.items():
            if re.match(pattern + r"(-|$)", last):
                return shape, "published numbers"
        problem = "its config is not on this machine, and its shape is none of those smopd knows"
        advice = "give --model-config with its config.json (or the folder of it)"
        raise UserError(f"model.path: {name}: {problem}; {advice}") from None
    return shape_of(model, name), "its config"

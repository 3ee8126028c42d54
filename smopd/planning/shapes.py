"""Shapes of dense decoders, and published figures of GPUs: rates without sparsity, memory in decimal GB."""

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from smopd.config import Config
from smopd.config_io import choices
from smopd.errors import UserError
from smopd.files import check_shape, read_json
from smopd.models.adapter_files import first_line
from smopd.models.loading import config_file

Names = Sequence[str]
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Shape:
    """A dense decoder. `normed`: queries and keys have their own norms (Qwen3, Gemma 3)."""

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

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """(in, out) of the seven linear layers of a decoder layer."""
        d, q, k, ff = self.hidden, self.queries, self.keys, self.intermediate
        sizes = [(d, q), (d, k), (d, k), (q, d), (d, ff), (d, ff), (ff, d)]
        return dict(zip(PROJECTIONS, sizes, strict=True))

    @property
    def linear(self) -> int:
        """Weights of all layers' projections."""
        return self.layers * sum(a * b for a, b in self.projections.values())

    @property
    def head(self) -> int:
        """Weights of the head, or of the embedding table."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        norms = 2 * self.hidden + (2 * self.head_dim if self.normed else 0)
        return self.linear + self.layers * norms + self.hidden + self.head * (1 if self.tied else 2)

    def adapter(self, rank: int, targets: Names = PROJECTIONS) -> int:
        return self.layers * rank * sum(sum(self.projections[name]) for name in targets)


def adapted_projections(config: Config) -> tuple[str, ...]:
    return tuple(p for p in PROJECTIONS if {p, "all-linear"} & set(config.lora.targets))


# Fields of a shape. If config.json has all of them, as most do, it is read without transformers, whose import
# takes seconds; otherwise its config class adds the defaults.
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
KINDS: dict[str, type] = dict.fromkeys((*SIZES, "num_key_value_heads", "head_dim"), int)
KINDS |= {"model_type": str, "tie_word_embeddings": bool}


def shape_of(model: Any, name: str = "this config") -> Shape:
    model = model.get_text_config() if hasattr(model, "get_text_config") else model
    experts = getattr(model, "num_experts", None) or getattr(model, "num_local_experts", None)
    missing = [field for field in SIZES if not isinstance(getattr(model, field, None), int)]
    if missing or experts:
        why = f"it has no {missing[0]}" if missing else f"it has {experts} experts"
        raise UserError(f"{name}: not a dense decoder ({why}); smopd plan knows dense decoders only")
    width, layers, heads, intermediate, vocabulary = (getattr(model, field) for field in SIZES)
    kv_heads = getattr(model, "num_key_value_heads", None) or heads
    head_dim = getattr(model, "head_dim", None) or width // heads
    tied, normed = bool(model.tie_word_embeddings), model.model_type.startswith(("qwen3", "gemma3"))
    return Shape(width, layers, heads, kv_heads, head_dim, intermediate, vocabulary, tied, normed)


def _parse_config(tree: dict[str, Any]) -> Any:
    """Read a config.json as an object; raises what transformers raises if it does not understand it."""
    # Models with custom code always go through transformers, which may not know them.
    if "auto_map" not in tree and all(isinstance(tree.get(key), kind) for key, kind in KINDS.items()):
        return SimpleNamespace(**tree)
    from transformers import AutoConfig

    return AutoConfig.for_model(**tree)


def read_shape(path: Path) -> Shape:
    file = path / "config.json" if path.is_dir() else path
    advice = "give a transformers config.json, or the folder of a model that holds one"
    try:
        tree = read_json(file, kind="config.json")
        check_shape(tree, dict, str(file))
        model = _parse_config(tree)
    except UserError as error:
        raise UserError(f"--model-config {error}; {advice}") from None
    except Exception as error:  # whatever transformers raises at values of the wrong kind
        problem = f"transformers does not understand it ({first_line(error)})"
        raise UserError(f"--model-config {path}: {problem}; {advice}") from None
    return shape_of(model, str(path))


def find_shape(config: Config) -> tuple[Shape, str]:
    """The shape of `model.path`, and where it was found. Uses no network."""
    name, file = config.model.path, config_file(config)
    model: Any = None
    with suppress(Exception):  # missing or broken
        model = _parse_config(read_json(file)) if file else None
    if model is not None:
        return shape_of(model, name), "its config"
    last = name.rstrip("/").rpartition("/")[2].lower()
    if known := [shape for pattern, shape in SHAPES.items() if re.match(pattern + r"(-|$)", last)]:
        return known[0], "published numbers"
    problem = "its config is not on this machine, and its shape is none of those smopd knows"
    advice = "give --model-config with its config.json (or the folder of it)"
    raise UserError(f"model.path: {name}: {problem}; {advice}")


@dataclass(frozen=True)
class Gpu:
    """A device. `float32` is the rate without TF32: the adapters are float32, and torch leaves TF32 off."""

    name: str
    memory: float  # GB
    bfloat16: float  # TFLOP/s, dense
    float32: float  # TFLOP/s
    bandwidth: float  # GB/s of its own memory
    link: float  # GB/s to its neighbours, one direction: NVLink, or PCIe

    @property
    def is_gpu(self) -> bool:
        return self.name != "cpu"

    @property
    def bytes(self) -> float:
        return self.memory * 1e9


_PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
GPUS = {name: Gpu(name, **numbers) for name, numbers in _PUBLISHED["gpus"].items()}
SHAPES = {pattern: Shape(**sizes) for pattern, sizes in _PUBLISHED["shapes"].items()}


def find_gpu(name: str) -> Gpu:
    if name.lower() in GPUS:
        return GPUS[name.lower()]
    raise UserError(f"--gpu {name}: not in the table{choices(name.lower(), list(GPUS), 'GPUs')}")

"""Loading a chat model and its tokenizer from a folder, a GGUF file, the hub, or the package itself (`pocket`)."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from smopd.chat import Renderer
from smopd.config import Config
from smopd.errors import UserError
from smopd.pocket import MODEL_DIR


@dataclass(frozen=True)
class ChatModel:
    """A base model with the renderer of its chat template."""

    model: PreTrainedModel
    renderer: Renderer

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's own tokenizer."""
        return self.renderer.tokenizer


def load_model(config: Config, device: torch.device | str = "cpu") -> ChatModel:
    """Load what `config.model` names; every failure says which setting to mend."""
    path, gguf = _source(config)
    with _failures_named(path):
        tokenizer = AutoTokenizer.from_pretrained(path, **gguf)
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, config.model.dtype), attn_implementation=config.model.attention, **gguf
        )
    ends = _as_list(model.generation_config.eos_token_id) or _as_list(model.config.eos_token_id)
    if gguf:  # its weights are plain numbers now, and PEFT would look for the quantised kind
        vars(model.config).pop("quantization_config", None)
    # A model's own sampling defaults (penalties, top-k, ...) must not colour rollouts: every setting is the run's.
    model.generation_config = GenerationConfig()
    model.to(torch.device(device))  # type: ignore[arg-type]
    return ChatModel(model.eval(), Renderer(tokenizer, config.chat.thinking, ends))


def load_renderer(config: Config) -> Renderer:
    """The chat template and end tokens of what `config.model` names, without its weights."""
    path, gguf = _source(config)
    with _failures_named(path):
        tokenizer = AutoTokenizer.from_pretrained(path, **gguf)
        try:
            ends = _as_list(GenerationConfig.from_pretrained(path).eos_token_id)
        except OSError:  # not every model comes with one
            ends = []
        ends = ends or _as_list(AutoConfig.from_pretrained(path, **gguf).eos_token_id)
    return Renderer(tokenizer, config.chat.thinking, ends)


def weights_digest(config: Config) -> str | None:
    """What tells one state of a local model from another without reading gigabytes; None for a hub name."""
    path = MODEL_DIR if config.model.path == "pocket" else Path(config.model.path).expanduser()
    files = [path] if path.is_file() else sorted(path.glob("*")) if path.is_dir() else []
    seen = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16] if seen else None


def _source(config: Config) -> tuple[str, dict[str, str]]:
    """Where transformers finds the model, and what it has to be told of a GGUF file."""
    path = str(MODEL_DIR) if config.model.path == "pocket" else config.model.path
    folder = Path(path).expanduser()
    transformers_logging.disable_progress_bar()
    if folder.suffix == ".gguf" and folder.is_file():
        return str(folder.parent), {"gguf_file": folder.name}
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise UserError(f"model.path: the folder {folder} holds no config.json; expected a Hugging Face model folder")
        return str(folder), {}
    if folder.is_absolute() or path.startswith((".", "~")) or path.count("/") != 1:
        raise UserError(f"model.path: {path}: no such model folder (a hub model is named owner/name)")
    return path, {}


@contextmanager
def _failures_named(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, json.JSONDecodeError) as error:
        raise UserError(f"model.path: {path}: cannot be loaded: {str(error).strip().splitlines()[0]}") from None


def resolve_adapter(path: str | Path) -> Path:
    """An adapter folder, or the newest checkpoint of a run folder."""
    folder = Path(path).expanduser()
    checkpoints = sorted((folder / "checkpoints").glob("step-*")) if (folder / "checkpoints").is_dir() else []
    chosen = checkpoints[-1] if checkpoints else folder
    if not (chosen / "adapter_config.json").exists():
        raise UserError(f"{path}: neither a PEFT adapter (no adapter_config.json) nor a run folder with a checkpoint")
    return chosen


def _as_list(value: int | list[int] | None) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)

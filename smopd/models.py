"""Loading a chat model and its tokenizer from a folder, the hub, or the package itself (`pocket`)."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
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
    path = str(MODEL_DIR) if config.model.path == "pocket" else config.model.path
    folder = Path(path).expanduser()
    if folder.is_dir():
        path = str(folder)
        if not (folder / "config.json").exists():
            raise UserError(f"model.path: the folder {path} holds no config.json; expected a Hugging Face model folder")
    elif folder.is_absolute() or path.startswith((".", "~")) or path.count("/") != 1:
        raise UserError(f"model.path: {path}: no such model folder (a hub model is named owner/name)")
    transformers_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(torch, config.model.dtype), attn_implementation=config.model.attention
        )
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        raise UserError(f"model.path: {path}: cannot be loaded: {str(error).strip().splitlines()[0]}") from None
    ends = _as_list(model.generation_config.eos_token_id) or _as_list(model.config.eos_token_id)
    # A model's own sampling defaults (penalties, top-k, ...) must not colour rollouts: every setting is the run's.
    model.generation_config = GenerationConfig()
    model.to(torch.device(device))  # type: ignore[arg-type]
    return ChatModel(model.eval(), Renderer(tokenizer, config.chat.thinking, ends))


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

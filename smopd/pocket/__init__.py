"""The pocket model: a small chat model, shipped with the package, that gets lost in conversation."""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"

"""The pocket model: a small chat model that is shipped with the package and gets lost in conversation as
large ones do.
"""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"

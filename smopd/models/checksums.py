"""The checksums of a checkpoint, by which training, evaluation and export tell whether it was damaged."""

import hashlib
import json
import re
import shutil
from pathlib import Path

from smopd.files import file_digest, sync, write_json

CHECKSUMS = "checksums.json"
WEIGHTS = "adapter_model.safetensors"
REQUIRED = ("adapter_config.json", WEIGHTS, "optimizer.json", "optimizer.safetensors",
            "state.json", "teacher.safetensors")  # fmt: skip


def seal(folder: Path) -> None:
    """Every file on disk, then their checksums, then the names."""
    listed = {}
    for path in sorted(folder.iterdir()):
        shutil.copymode(folder / "state.json", path)
        sync(path)
        listed[path.name] = file_digest(path)
    write_json(folder / CHECKSUMS, listed | {CHECKSUMS: _digest_of(listed)})
    sync(folder)


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, None if it is as it was written."""
    if not (folder / CHECKSUMS).exists():
        return f"it has no {CHECKSUMS}: its writing never ended, or an earlier smopd wrote it"
    try:
        listed: dict[str, str] = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        digest = listed.pop(CHECKSUMS)
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return f"{CHECKSUMS} cannot be read"
    if digest != _digest_of(listed):
        return f"{CHECKSUMS} is not what was written"
    if missing := [name for name in REQUIRED if name not in listed]:
        return f"{CHECKSUMS} does not list {', '.join(missing)}"
    for name, expected in listed.items():
        try:
            if file_digest(folder / name) != expected:
                return f"{name} is not what was written (another checksum)"
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run folder, oldest first, damaged ones among them."""
    folders = (run / "checkpoints").glob("step-*")
    return sorted((p for p in folders if re.fullmatch(r"step-\d+", p.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def is_checkpoint(folder: Path) -> bool:
    """Whether smopd wrote this folder, whole or not: one that it did not write has no checksums to keep."""
    run = folder.parent.parent
    in_run = (run / "config.toml").exists() and folder in checkpoints(run)
    return in_run or any((folder / name).exists() for name in (CHECKSUMS, "teacher.safetensors"))


def _digest_of(listed: dict[str, str]) -> str:
    """Of the list itself, so that damage to it is not blamed on a file that is sound."""
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()

"""Adapters on disk: finding one, and loading it only if every file is sound and every tensor fits the base.
PEFT alone fills what is missing with random numbers and says so in a warning. A checkpoint has checksums, by
which training, evaluation and export tell whether it was damaged.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from smopd.errors import UserError
from smopd.files import file_digest, read_json, sync, write_json
from smopd.lazy import torch

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel
    from transformers import PreTrainedModel

Tensors = dict[str, "torch.Tensor"]
STUDENT, TEACHER = "default", "teacher"  # PEFT saves the former without a subfolder
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TEACHER_WEIGHTS = "teacher.safetensors"  # of a checkpoint: the same names as the student's
CHECKSUMS = "checksums.json"
REQUIRED = (CONFIG, WEIGHTS, "optimizer.json", "optimizer.safetensors", "state.json", TEACHER_WEIGHTS)
COPY = "copy the adapter again from where it was made"


def resolve_adapter(path: str | Path) -> Path:
    """An adapter folder, or the newest checkpoint of a run folder; an error if a file of it is damaged."""
    folder = Path(path).expanduser()
    chosen = (checkpoints(folder) or [folder])[-1]
    if not is_checkpoint(chosen) and not (chosen / CONFIG).exists():
        raise UserError(f"{path}: neither a PEFT adapter (no {CONFIG}) nor a run folder with a checkpoint")
    read_adapter(chosen)
    return chosen


def copy_adapter(source: Path, to: Path, weights: str = WEIGHTS, base: str = "") -> None:
    """Copy an adapter; `base`, if any, replaces the name of its base, which may be a path on this machine."""
    to.mkdir(parents=True, exist_ok=True)
    renamed = {"base_model_name_or_path": base} if base else {}
    write_json(to / CONFIG, read_json(source / CONFIG) | renamed)
    shutil.copyfile(source / weights, to / WEIGHTS)


@contextmanager
def averaged_teacher(adapter: Path) -> Iterator[Path]:
    """The teacher of a checkpoint as an adapter folder of its own, inside this block."""
    with TemporaryDirectory(prefix="smopd-") as folder:
        copy_adapter(adapter, Path(folder), TEACHER_WEIGHTS)
        yield Path(folder)


def read_adapter(folder: Path) -> tuple[LoraConfig, Tensors]:
    """Settings and tensors of an adapter whose files are whole: of a checkpoint, by its checksums."""
    if is_checkpoint(folder) and (problem := damage(folder)):
        raise UserError(f"{folder}: damaged: {problem}\n{_suggest_alternative(folder)}")
    config, tensors = _read_config(folder), _read_tensors(folder)
    # Before PEFT makes room for the rank that the settings name.
    ranks = {config.r, *(config.rank_pattern or {}).values()}
    sizes = {tensor.shape[0] for name, tensor in tensors.items() if name.endswith(".lora_A.weight")}
    if sizes - ranks and not config.target_parameters:
        mismatch = f"{CONFIG} says rank {config.r}, a tensor of {WEIGHTS} has {max(sizes - ranks)}"
        raise UserError(f"{folder}: {mismatch}; {COPY}")
    return config, tensors


def _read_config(folder: Path) -> LoraConfig:
    file = folder / CONFIG
    tree = read_json(file)
    if not isinstance(tree, dict) or tree.get("peft_type") != "LORA":
        kind = repr(tree.get("peft_type"))[:40] if isinstance(tree, dict) else "something else"
        raise UserError(f"{file}: expected the settings of a LoRA adapter (peft_type LORA), found {kind}")
    r, alpha = tree.get("r", 0), tree.get("lora_alpha", 0)
    if type(r) is not int or r < 1 or type(alpha) not in (int, float) or not 0 < alpha < 1e9:
        raise UserError(f"{file}: r and lora_alpha must be positive numbers; {COPY}")
    if tree.get("megatron_config"):  # PEFT would import whatever module `megatron_core` names
        raise UserError(f"{file}: an adapter for Megatron layers, which the models here do not have")
    from peft import LoraConfig, PeftConfig

    try:
        config = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # whatever PEFT may raise at values of the wrong kind
        raise UserError(f"{file}: PEFT cannot read it: {first_line(error)}; {COPY}") from None
    assert isinstance(config, LoraConfig)
    return config


def _read_tensors(folder: Path) -> Tensors:
    file = folder / WEIGHTS
    if not file.exists():
        raise UserError(f"{folder}: holds no {WEIGHTS}; expected a PEFT adapter folder")
    from safetensors.torch import load_file

    try:
        tensors = load_file(file)
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise UserError(f"{file}: damaged: {first_line(error)}; {COPY}") from None
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor.float()).all():
            raise UserError(f"{file}: {name} holds numbers that are not finite; use an earlier checkpoint")
    if not any(tensor.any() for tensor in tensors.values()):
        raise UserError(f"{file}: all its numbers are 0, which no training gives; {COPY}")
    return tensors


def load_adapter(base: PreTrainedModel, folder: Path, trainable: bool = False) -> PeftModel:
    """The base with the adapter of a folder as its student; an error unless each fits the other exactly."""
    from peft import PeftModelForCausalLM

    from smopd.models.adapters import compute_in_base_type

    config, tensors = read_adapter(folder)
    config.inference_mode = not trainable
    try:
        model = PeftModelForCausalLM(base, config, STUDENT)
    except Exception as error:  # whatever PEFT may raise where layers are not there or of another kind
        raise UserError(f"{folder}: does not fit this model: {first_line(error)}") from None
    fill_adapter(model, tensors, folder)
    compute_in_base_type(model)
    return model if trainable else model.eval()


def fill_adapter(model: PeftModel, tensors: Tensors, source: Path, name: str = STUDENT) -> None:
    """Put tensors into the adapter of this name: every one of them, and nothing stays as it was."""
    from peft import set_peft_model_state_dict

    try:
        loaded: Any = set_peft_model_state_dict(model, tensors, adapter_name=name)
    except (RuntimeError, ValueError, KeyError) as error:
        raise UserError(f"{source}: does not fit this model: {first_line(error)}") from None
    missing = [n for n in loaded.missing_keys if "lora_" in n and f".{name}" in n]
    problems = {"it has no tensor": missing, "the model has no place for": loaded.unexpected_keys}
    for problem, names in problems.items():
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            where = f"{source}: does not fit this model: {problem} {names[0]}{more}"
            raise UserError(f"{where}; {CONFIG}, {WEIGHTS} and the base must belong together")


def check_fit(skeleton: PreTrainedModel, folder: Path) -> PeftModel:
    """As `load_adapter`, for a base on the meta device: only names and shapes are compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that nothing is copied to the meta device
        return load_adapter(skeleton, folder)


def largest_rank(model: PeftModel) -> int:
    adapters: Any = model.peft_config.values()
    return max(rank for a in adapters for rank in (a.r, *a.rank_pattern.values()))


def _suggest_alternative(folder: Path) -> str:
    run = folder.parent.parent
    if sound := [c for c in checkpoints(run) if c != folder and damage(c) is None]:
        advice = "or train on from it with the same command"
        return f"use an older checkpoint, which is sound: {sound[-1]}; {advice}"
    if folder in checkpoints(run):
        return f"{run} has no other sound checkpoint: train it again"
    return COPY


def first_line(error: Exception) -> str:
    """What an error says, without the headline of torch's list of mismatches."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    mismatches = [line for line in lines if line.startswith("size mismatch")]
    return [*mismatches, *lines, type(error).__name__][0][:300]


# --- checksums of a checkpoint
def seal(folder: Path) -> None:
    """Every file on disk, then their checksums, then the names."""
    listed = {}
    for path in sorted(folder.iterdir()):
        # safetensors makes files that only their owner can read, but a server may run as another user.
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
    return in_run or any((folder / name).exists() for name in (CHECKSUMS, TEACHER_WEIGHTS))


def _digest_of(listed: dict[str, str]) -> str:
    """Of the list itself, so that damage to it is not blamed on a file that is sound."""
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()

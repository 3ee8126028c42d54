"""One checkpoint: a folder that is complete or absent, with checksums that reveal damage. It holds adapter_*
(the student, in plain PEFT format), teacher.safetensors, optimizer.* (tensors and other values), state.json
(step, settings hash, version), ahead.* (unused conversations) and, last, checksums.json. Nothing is pickled.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from smopd.config import Config, settings_hash
from smopd.errors import UserError
from smopd.files import new_folder, read_json, write_json
from smopd.lazy import torch
from smopd.machine import code_version
from smopd.models import adapter_files
from smopd.models.adapter_files import CONFIG, STUDENT, TEACHER, TEACHER_WEIGHTS, fill_adapter

if TYPE_CHECKING:
    from peft import PeftModel


def write(
    final: Path, step: int, model: PeftModel, optimizer: torch.optim.Optimizer, config: Config,
    more: Callable[[Path], None] | None = None,
) -> None:  # fmt: skip
    """Write and sync a checkpoint under another name, then move it into place, replacing an older one."""
    from smopd.models.adapters import save_teacher

    with new_folder(final) as partial:
        partial.mkdir(parents=True)
        model.save_pretrained(str(partial), selected_adapters=[STUDENT], save_embedding_layers=False)
        # PEFT writes sets in hash order, which differs between processes.
        settings = model.peft_config[STUDENT].to_dict().items()
        sets = {key: sorted(value) for key, value in settings if isinstance(value, set)}
        write_json(partial / CONFIG, read_json(partial / CONFIG) | sets)
        save_teacher(model, partial / TEACHER_WEIGHTS)
        _save_optimizer(optimizer, partial)
        if more:
            more(partial)
        state = {"step": step, "settings": settings_hash(config), "smopd": code_version()}
        write_json(partial / "state.json", state)
        adapter_files.seal(partial)
        if final.exists():
            discard(final)


def discard(folder: Path) -> None:
    """Delete a checkpoint; a crash meanwhile leaves no partial one under its name."""
    hidden = folder.with_name(f".discarded-{folder.name}")
    shutil.rmtree(hidden, ignore_errors=True)
    os.rename(folder, hidden)
    shutil.rmtree(hidden)


def sweep(checkpoints: Path) -> None:
    """Delete what a crash left half written or half deleted."""
    for pattern in (".partial-*", ".discarded-*"):
        for left in checkpoints.glob(pattern):
            shutil.rmtree(left)


def load(
    folder: Path, model: PeftModel, optimizer: torch.optim.Optimizer, config: Config,
    earlier: Iterable[Config] = (),
) -> int:  # fmt: skip
    """Load a checkpoint; return its step. `earlier`: former settings of the run, accepted in checkpoints."""
    from safetensors.torch import load_file

    student = adapter_files.read_adapter(folder)[1]  # raises if the checkpoint is damaged
    state = read_json(folder / "state.json")
    if state["settings"] not in {settings_hash(known) for known in (config, *earlier)}:
        there = f"hash {state['settings']}, smopd {state['smopd']}"
        here = f"here {settings_hash(config)}, smopd {code_version()}"
        advice = "move it away or choose another --out"
        raise UserError(f"{folder}: belongs to a run of other settings ({there}; {here}); {advice}")
    try:
        fill_adapter(model, student, folder)
        fill_adapter(model, load_file(folder / TEACHER_WEIGHTS), folder, TEACHER)
        optimizer.load_state_dict(_load_optimizer(folder))
    except UserError:
        raise
    except (ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise UserError(f"{folder}: does not fit this model: {adapter_files.first_line(error)}") from None
    return int(state["step"])


def _save_optimizer(optimizer: torch.optim.Optimizer, folder: Path) -> None:
    from safetensors.torch import save_file

    state = optimizer.state_dict()
    named = ((f"{k}.{name}", tensor) for k, kept in state["state"].items() for name, tensor in kept.items())
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named}
    save_file(tensors, folder / "optimizer.safetensors")
    # The state of AdamW has tensors only, no other values.
    write_json(folder / "optimizer.json", {"param_groups": state["param_groups"], "values": {}})


def _load_optimizer(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    plain = read_json(folder / "optimizer.json")
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in load_file(folder / "optimizer.safetensors").items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    for group in plain["param_groups"]:  # JSON has no tuples, and betas is one
        group |= {k: tuple(v) for k, v in group.items() if isinstance(v, list) and k != "params"}
    return {"state": state, "param_groups": plain["param_groups"]}

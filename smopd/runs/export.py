"""Export a run: a model folder with the adapter merged into the unquantized base, or the adapter alone."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.config import Config, load_config
from smopd.errors import UserError
from smopd.files import explain_os_errors, new_folder, read_json, require_writable, write_text
from smopd.lazy import torch
from smopd.models import ChatModel, load_model, resolve_adapter
from smopd.models.adapter_files import CONFIG, checkpoints, copy_adapter, first_line, load_adapter
from smopd.models.loading import load_generation_config
from smopd.runs.layout import CHECKPOINTS
from smopd.runs.model_card import model_card, public
from smopd.runs.run import Run
from smopd.runs.target import run_of
from smopd.tracking import Track, quiet

DTYPES = ("float32", "bfloat16", "float16")


def export(
    source: Path, out: Path, checkpoint: str = "", dtype: str = "", adapter_only: bool = False,
    name: str = "", track: Track = quiet,
) -> dict[str, Any]:  # fmt: skip
    """Export a run folder or an adapter; return what was written. `name`: what the model card calls it."""
    if os.path.lexists(out):
        raise UserError(f"{out}: exists; nothing was written, choose another folder")
    if dtype and dtype not in DTYPES:
        raise UserError(f"--dtype {dtype}: unknown; choose from {', '.join(DTYPES)}")
    if dtype and adapter_only:
        raise UserError("--dtype: an adapter is written as it was trained; --dtype is for a merged model")
    require_writable(out)
    run, adapter = _find(source, checkpoint)
    config = Run(run).config if run else _config_of(adapter)
    wanted = "" if adapter_only else dtype or config.model.dtype
    chat = _merge(config, adapter, wanted, track) if wanted else None
    with explain_os_errors(f"{out}: the model cannot be written"), new_folder(out) as unfinished:
        with track(f"writing {out}"):
            if chat:
                _write_model(config, chat, unfinished)
            else:
                copy_adapter(adapter, unfinished, base=public(config.model.path))
        write_text(unfinished / "README.md", model_card(name or out.name, config, adapter, run, wanted))
    written = sorted(path.name for path in out.iterdir())
    summary = {"model": str(out), "base": config.model.path, "adapter": str(adapter)}
    return {**summary, "dtype": wanted or None, "files": written}


def _merge(config: Config, adapter: Path, wanted: str, track: Track) -> ChatModel:
    # Merge in the wider of the two, and round once.
    wide = "float32" if "float32" in (wanted, config.model.dtype) else wanted
    plain = {"quantize": "none", "dtype": wide, "adapter": ""}
    with track(f"loading {config.model.path}"):
        chat = load_model(config.model_copy(update={"model": config.model.model_copy(update=plain)}))
    with track(f"folding in {adapter}"):
        adapted: Any = load_adapter(chat.model, adapter)
        try:
            merged = adapted.merge_and_unload(safe_merge=True)
        except (ValueError, RuntimeError) as error:
            problem = f"the adapter cannot be merged into the model: {first_line(error)}"
            raise UserError(f"{adapter}: {problem}") from None
        return replace(chat, model=merged.to(getattr(torch, wanted)))


def _write_model(config: Config, chat: ChatModel, folder: Path) -> None:
    from transformers import GenerationConfig

    generation = load_generation_config(config) or GenerationConfig(eos_token_id=list(chat.renderer.end_ids))
    chat.model.save_pretrained(folder)
    # After `save_pretrained`, which refuses some published settings (greedy, with a temperature).
    write_text(folder / "generation_config.json", generation.to_json_string())
    chat.renderer.tokenizer.save_pretrained(folder)


def _find(source: Path, checkpoint: str) -> tuple[Path | None, Path]:
    source = source.expanduser()
    run = run_of(source)
    if not checkpoint:
        return run, resolve_adapter(source)
    chosen = source / CHECKPOINTS / checkpoint
    if run != source or not chosen.is_dir():
        there = ", ".join(p.name for p in checkpoints(source)) or "none"
        raise UserError(f"--checkpoint {checkpoint}: not in {source}; its checkpoints: {there}")
    return run, resolve_adapter(chosen)


def _config_of(adapter: Path) -> Config:
    base = read_json(adapter / CONFIG).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise UserError(f"{adapter}: its adapter_config.json names no base model (base_model_name_or_path)")
    return load_config(None, [f"model.path={json.dumps(base)}"])

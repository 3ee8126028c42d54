"""A trained run as a plain model folder: the adapter folded into its full base, tokenizer, model card."""

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from smopd.config import Config, load_config, to_toml
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.evaluation.store import data_digest, load_identity, load_summary
from smopd.files import file_digest, read_jsonl, write_text
from smopd.formatting import interval, percent
from smopd.models.adapter_files import load_adapter, resolve_adapter
from smopd.models.checksums import checkpoints
from smopd.models.loading import load_generation_config, load_model

DTYPES = ("float32", "bfloat16", "float16")


def export(source: Path, out: Path, checkpoint: str = "", dtype: str = "") -> dict[str, Any]:
    """Write the model that `source`, a run folder or an adapter, has trained; says what was written."""
    if out.exists() or out.is_symlink():
        raise UserError(f"{out}: exists; nothing was written, choose another folder")
    if dtype and dtype not in DTYPES:
        raise UserError(f"--dtype {dtype}: unknown; choose from {', '.join(DTYPES)}")
    run, adapter = _find(source, checkpoint)
    config = load_config(run / "config.toml") if run else _config_of(adapter)
    wanted = dtype or config.model.dtype
    # Folded in the wider of the two, rounded once.
    wide = "float32" if "float32" in (wanted, config.model.dtype) else wanted
    plain = {"quantize": "none", "dtype": wide, "adapter": ""}
    chat = load_model(config.model_copy(update={"model": config.model.model_copy(update=plain)}))
    model = _folded(chat.model, adapter).to(getattr(torch, wanted))
    generation = load_generation_config(config) or GenerationConfig(eos_token_id=list(chat.renderer.end_ids))
    partial = out.with_name(f".partial-{out.name}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        model.save_pretrained(partial)
        # Behind `save_pretrained`, which would refuse what some makers publish (a temperature, but greedy).
        write_text(partial / "generation_config.json", generation.to_json_string())
        chat.tokenizer.save_pretrained(partial)
        write_text(partial / "README.md", model_card(out.name, config, adapter, run, wanted))
        partial.rename(out)
    except OSError as error:
        raise UserError(f"{out}: the model cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    written = sorted(path.name for path in out.iterdir())
    made = {"model": str(out), "base": config.model.path, "adapter": str(adapter)}
    return {**made, "dtype": wanted, "files": written}


def _find(source: Path, checkpoint: str) -> tuple[Path | None, Path]:
    source = source.expanduser()
    run: Path | None = source.parent.parent if source.parent.name == "checkpoints" else source
    run = run if run and (run / "config.toml").exists() else None
    if not checkpoint:
        return run, resolve_adapter(source)
    chosen = source / "checkpoints" / checkpoint
    if run != source or not chosen.is_dir():
        there = ", ".join(p.name for p in checkpoints(source)) or "none"
        raise UserError(f"--checkpoint {checkpoint}: not in {source}; its checkpoints: {there}")
    return run, resolve_adapter(chosen)


def _config_of(adapter: Path) -> Config:
    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    base = settings.get("base_model_name_or_path")
    if not base:
        raise UserError(f"{adapter}: its adapter_config.json names no base model (base_model_name_or_path)")
    return load_config(None, [f"model.path={json.dumps(base)}"])


def _folded(base: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    model: Any = load_adapter(base, adapter)
    try:
        return model.merge_and_unload(safe_merge=True)
    except (ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{adapter}: the adapter cannot be folded into the model: {first}") from None


def model_card(name: str, config: Config, adapter: Path, run: Path | None, dtype: str) -> str:
    """README.md of an exported model (without `dtype`: of an adapter). No path or address of this machine
    stands in it.
    """
    base = config.model.path
    hub = not Path(base).expanduser().exists() and base != "pocket"
    base = base if hub else _public(base)
    head = f"library_name: {'transformers' if dtype else 'peft'}\npipeline_tag: text-generation\n"
    head += "tags: [smopd, self-distillation, multi-turn]\n" + (f"base_model: {base}\n" if hub else "")
    parts = [f"---\n{head}---", f"# {name}"]
    method = f" with smopd's method `{_public(config.method)}`, seed {config.seed}" if run else ""
    weights = f"The LoRA adapter is folded into the weights ({dtype})"
    weights = weights if dtype else "These are the weights of a LoRA adapter, which PEFT loads onto it"
    parts += [
        f"`{base}` after multi-turn on-policy self-distillation (SMOPD, arXiv 2608.14647){method}: trained "
        f"to answer a task told over several turns as it answers the task told at once. {weights}; exported "
        f"by smopd {version('smopd')}.",
        f"**Licence**: the weights derive from `{base}`; its licence and terms of use apply to this model "
        "too. State them here before you publish it.",
    ]
    if run:
        parts += [_training(config, adapter, run), *_evaluations(adapter, run)]
        data = {name: _public(getattr(config.data, name)) for name in ("train", "eval", "databases")}
        verifiers = [_public(name) for name in config.data.verifiers]
        model = {"path": base, "adapter": _public(config.model.adapter)}
        public_data = config.data.model_copy(update={**data, "verifiers": verifiers})
        public: dict[str, Any] = {"data": public_data, "method": _public(config.method)}
        public["model"] = config.model.model_copy(update=model)
        tables = re.split(r"\n(?=\[)", to_toml(config.model_copy(update=public)).strip())
        # Addresses are nobody's business.
        kept = [table.strip() for table in tables if not table.startswith(("[engine]", "[user]"))]
        parts.append("## Settings\n\n```toml\n" + "\n\n".join(kept) + "\n```")
    return "\n\n".join(parts) + "\n"


def _training(config: Config, adapter: Path, run: Path) -> str:
    state = adapter / "state.json"
    step = json.loads(state.read_text(encoding="utf-8"))["step"] if state.exists() else None
    lines = [f"- step {step} of {config.train.steps}, {config.train.rollouts} conversations a step"]
    lines += [f"- seed {config.seed}"]
    if config.model.quantize != "none":
        lines.append(f"- base weights in {config.model.quantize} while training")
    lines.append(f"- training data: {_data(config.data.train)}")
    rows = {row["step"]: row for row in read_jsonl(run / "metrics.jsonl")}
    if step in rows:
        shown = {key: rows[step].get(key) for key in ("loss", "loss/middle", "loss/answer", "grad_norm")}
        numbers = [f"{key} {value:.4g}" for key, value in shown.items() if value is not None]
        lines.append(f"- last step: {', '.join(numbers)}")
    return "## Training\n\n" + "\n".join(lines)


def _evaluations(adapter: Path, run: Path) -> list[str]:
    """Tables of what was evaluated in the run folder: the base, and the checkpoint that is exported."""
    last = checkpoints(run)[-1:] == [adapter]
    digest = file_digest(adapter / "adapter_model.safetensors")
    rows = []
    for folder in sorted((run / "eval").glob("*")):
        summary, identity = load_summary(folder), load_identity(folder)
        ours = identity.get("adapter") == digest or (folder.name == "trained" and last)
        if summary is None or not (ours or identity.get("adapter") is None):
            continue
        model, where = "this model" if ours else "base", _public(str(identity.get("data", "")))
        for view, v in summary["views"].items():
            correct = f"{v['correct']}/{v['total']}" if "correct" in v else ""
            numbers = f"{percent(v['accuracy'])} | {interval(v['low'], v['high'])} | {correct}"
            rows.append(f"| {model} | {where} | {view.upper()} | {numbers} |")
    head = "| | data | view | accuracy | 95% interval | correct |\n|---|---|---|---|---|---|\n"
    return ["## Evaluation\n\n" + head + "\n".join(sorted(rows))] if rows else []


def _data(name: str) -> str:
    path = Path(name).expanduser()
    if path.is_file():
        return f"`{path.name}`, sha256 {file_digest(path)}"
    if name.startswith("pocket:"):
        return f"`{name}`, generated by smopd, digest {data_digest(load_examples(name))}"
    return f"`{_public(name)}`"


def _public(name: str) -> str:
    """The last part of a local path; a hub name as it is."""
    return Path(name).name if name.startswith(("/", "~", ".")) or Path(name).expanduser().exists() else name

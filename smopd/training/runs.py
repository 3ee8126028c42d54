"""Whole runs: train or resume one, evaluate before and after (quickstart), build a base model."""

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from smopd.config import Config, load_config
from smopd.evaluation.evaluate import prepared_examples
from smopd.evaluation.store import load_identity
from smopd.files import file_digest, require_writable
from smopd.lazy import torch
from smopd.machine import package_versions
from smopd.models import resolve_adapter
from smopd.models.adapter_files import WEIGHTS
from smopd.rollout.engine import resolve_engine
from smopd.runs.evaluations import BASE, TRAINED, evaluate_side, evaluation_folder
from smopd.runs.export import export
from smopd.runs.layout import STARTS
from smopd.runs.writer import RunFolder
from smopd.tracking import Track, quiet
from smopd.training.check import check_training
from smopd.training.hooks import Hooks

log = logging.getLogger("smopd")
BASE_RECIPE = "smollm2-base"
LOGGED = 10  # examples whose tokens the quickstart logs, in every view, before and after
Note = Callable[[dict[str, Any]], str]  # summarises a step's metrics for the progress line


def train_run(
    config: Config, folder: RunFolder, track: Track = quiet, note: Note = lambda row: "",
    hooks: Hooks | None = None,
) -> None:  # fmt: skip
    require_writable(folder.path)
    examples = check_training(config)
    from smopd.training.loop import Trainer
    from smopd.training.processes import Processes

    config = resolve_engine(config)  # the folder keeps the unresolved setting
    processes = Processes()
    processes.barrier()  # all have read the folder; from here on the first one changes it
    with ExitStack() as held:
        processes.on_first(lambda: held.enter_context(folder.lock()))
        with track(f"loading {config.model.path} and {config.data.train}"):
            trainer = Trainer(config, folder, processes, examples)
        if processes.first and trainer.step < config.train.steps:
            where = {"device": str(processes.device), "processes": processes.world_size}
            where["threads"] = torch.get_num_threads()
            begun = {"step": trainer.step, "steps": config.train.steps, "engine": config.engine.kind}
            folder.append(STARTS, {**begun, **where, **package_versions()})
        if trainer.step:
            log.info("continuing %s after step %d", folder.path, trainer.step)
        with track(f"training ({config.method})", config.train.steps, trainer.step) as update:
            trainer.train(lambda row: update(row["step"], note(row)), hooks)
        if trainer.monitor.enough():
            why = f"no better SHARDED in {config.train.patience} evaluations (train.patience)"
            log.info("ended after step %d: %s; resume with --set train.patience=0", trainer.step, why)


def quickstart_run(config: Config, folder: RunFolder, track: Track, note: Note) -> dict[str, Any]:
    """Evaluate the base model, train, evaluate again; skip what the folder already holds."""
    require_writable(folder.path)
    examples = prepared_examples(config, "eval")
    check_training(config)
    config = resolve_engine(config)
    if not config.eval.save_tokens and config.engine.kind == "hf":  # so that the pages can show tokens
        logged = {"save_tokens": True, "save_tokens_limit": LOGGED}
        config = config.model_copy(update={"eval": config.eval.model_copy(update=logged)})
    run = folder.path
    base, trained = (evaluation_folder(run, side) for side in (BASE, TRAINED))
    with folder.lock():
        _, before, _ = evaluate_side(run, BASE, config, examples, None, base, (), folder.begin, track)
        train_run(config, folder, track, note)
        adapter = resolve_adapter(run)
        # A run lengthened since has a new checkpoint, whose evaluation goes beside the old one.
        same = load_identity(trained).get("adapter") in (None, file_digest(adapter / WEIGHTS))
        place = trained if same else None
        _, after, _ = evaluate_side(run, adapter.name, config, examples, adapter, place, track=track)
    return {"base": before, "trained": after}


def build_base(out: Path, overrides: list[str], track: Track, note: Note) -> dict[str, Any]:
    """Build a base model that gets lost: SmolLM2, fine-tuned on FULL tasks only. Writes what is missing of
    OUT/stock (SmolLM2 unchanged), OUT/run (the fine-tuning, an ordinary run) and OUT/model (stock merged with
    the run's adapter), each atomically; returns their paths.
    """
    parts = {name: str(out / name) for name in ("stock", "run", "model")}
    config = load_config(BASE_RECIPE, [f"model.path={json.dumps(parts['stock'])}", *overrides])
    folder = RunFolder(out / "run", config)  # refuses settings that differ from the run's
    if (out / "model" / "config.json").exists():
        return parts
    from smopd.models.smollm2 import write_plain

    write_plain(out / "stock", track)
    train_run(config, folder, track, note)
    with track("folding the adapter into the base"):
        export(out / "run", out / "model")
    return parts


def find_or_build_base(config: Config, track: Track, note: Note) -> None:
    """Build the model that a config trains if `build_base` makes it and it is missing."""
    model = Path(config.model.path)
    if model.name == "model" and not (model / "config.json").exists():
        prepared_examples(config, "train"), prepared_examples(config, "eval")  # a mistake shows before it
        build_base(model.parent, [], track, note)

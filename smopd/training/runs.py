"""A whole run: train it, or continue it; and the quickstart, which measures before and after."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from smopd.code_version import versions
from smopd.config import Config
from smopd.evaluation.prepare import prepared_examples
from smopd.evaluation.session import evaluate_into
from smopd.models import resolve_adapter
from smopd.rollout.assembly import refuse_endpoint
from smopd.rollout.choice import resolve_engine
from smopd.tracking import Track, quiet
from smopd.training.loop import Trainer
from smopd.training.processes import Processes
from smopd.training.run_folder import RunFolder

log = logging.getLogger("smopd")
Note = Callable[[dict[str, Any]], str]  # a few words on a step's metrics


def train_run(config: Config, folder: RunFolder, track: Track = quiet, note: Note = lambda row: "") -> None:
    """Train to the end, or from where an earlier start of the same run stopped."""
    config = resolve_engine(config)  # the folder keeps what was asked for
    refuse_endpoint(config)
    processes = Processes()
    with folder.lock() if processes.first else nullcontext():
        with track(f"loading {config.model.path} and {config.data.train}"):
            trainer = Trainer(config, folder, processes)
        if processes.first and trainer.step < config.train.steps:
            where = {"device": str(processes.device), "processes": processes.world_size}
            folder.record_start({"step": trainer.step, "engine": config.engine.kind, **where, **versions()})
        if trainer.step:
            log.info("continuing %s after step %d", folder.path, trainer.step)
        counted = track(f"training ({config.method})", config.train.steps, trainer.step)
        with folder.recorded_warnings() if processes.first else nullcontext(), counted as update:
            trainer.train(lambda row: update(row["step"], note(row)))
        processes.close()


def quickstart_run(
    config: Config, folder: RunFolder, track: Track = quiet, note: Note = lambda row: ""
) -> dict[str, Any]:
    """Base accuracy, training, accuracy after; each part is skipped when the folder already holds it."""
    config = resolve_engine(config)
    refuse_endpoint(config)
    examples = prepared_examples(config, "eval")
    base, trained = folder.path / "eval" / "base", folder.path / "eval" / "trained"
    with folder.lock():
        before = evaluate_into(base, config, examples, "base", begin=folder.begin, track=track)
        train_run(config, folder, track, note)
        adapter = resolve_adapter(folder.path)
        after = evaluate_into(trained, config, examples, "trained", adapter, track=track)
    return {"base": before, "trained": after}

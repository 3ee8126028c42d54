"""A whole run: train it, or continue it; and the quickstart, which measures before and after."""

from contextlib import nullcontext
from typing import Any

from smopd.cli.progress import Progress, console, training_note, waiting
from smopd.config import Config
from smopd.errors import UserError
from smopd.evaluation.prepare import prepared_examples
from smopd.evaluation.session import evaluate_into
from smopd.models import resolve_adapter
from smopd.training.loop import Trainer
from smopd.training.processes import Processes
from smopd.training.run_folder import RunFolder


def refuse_endpoint(config: Config) -> None:
    """Training needs the sampled token ids, which a chat endpoint does not give."""
    if config.engine.kind == "openai":
        raise UserError(
            "engine.kind: openai is for evaluation only (smopd eval); train with hf, vllm or vllm-http"
        )


def train_run(config: Config, folder: RunFolder) -> None:
    """Train to the end, or from where an earlier start of the same run stopped."""
    refuse_endpoint(config)
    processes = Processes()
    with folder.lock() if processes.first else nullcontext():
        with waiting(f"loading {config.model.path} and {config.data.train}"):
            trainer = Trainer(config, folder, processes)
        if trainer.step:
            console.print(f"continuing {folder.path} after step {trainer.step}", markup=False)
        with Progress(f"training ({config.method})", config.train.steps, trainer.step) as progress:
            trainer.train(lambda row: progress.update(row["step"], training_note(row)))


def quickstart_run(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Base accuracy, training, accuracy after; each part is skipped when the folder already holds it."""
    refuse_endpoint(config)
    examples = prepared_examples(config, "eval")
    stages = folder.path / "eval"
    with folder.lock():
        base = evaluate_into(stages / "base", config, examples, "base", begin=folder.begin)
        train_run(config, folder)
        trained = evaluate_into(stages / "trained", config, examples, "trained", resolve_adapter(folder.path))
    return {"base": base, "trained": trained}

"""What the verbs do once their arguments are read: evaluate a model, train a run, the quickstart. Progress on standard error."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from smopd.config import Config
from smopd.data import Example, load_examples
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, View, evaluate
from smopd.models import ChatModel, load_model, resolve_adapter
from smopd.progress import Progress, console, training_note, waiting
from smopd.results import load_summary, save_evaluation
from smopd.rollout import Driver, HFEngine, Sampling
from smopd.training.adapters import merged
from smopd.training.loop import Trainer
from smopd.training.run_folder import RunFolder


def device() -> str:
    """Where to compute: a GPU if torch sees one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def run_evaluation(
    config: Config, examples: Sequence[Example], label: str, adapter: Path | None = None
) -> dict[View, list[Outcome]]:
    """Play the configured views with a model, an adapter on it if given."""
    with waiting(f"loading {config.model.path}"):
        chat = load_model(config, device())
        model: torch.nn.Module = chat.model
        if adapter:
            model = _with_adapter(chat, adapter)
    settings = config.eval
    sampling = Sampling(settings.temperature, settings.tokens)
    engine = HFEngine(model, chat.renderer.end_ids, settings.batch)
    driver = Driver(engine, chat.renderer, sampling, settings.middle_tokens, config.chat.history)
    outcomes: dict[View, list[Outcome]] = {}
    for view in settings.views:
        folded = merged(model) if adapter and config.rollout.merge else nullcontext()
        with folded, Progress(f"{label} {view.upper()}", len(examples)) as progress:
            outcomes |= evaluate(driver, examples, [view], config.seed, settings.batch, lambda _, done, __: progress.update(done))
    return outcomes


def _with_adapter(chat: ChatModel, adapter: Path) -> torch.nn.Module:
    try:
        return PeftModel.from_pretrained(chat.model, str(adapter)).eval()
    except (ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{adapter}: the adapter does not fit the model: {str(error).strip().splitlines()[0]}") from None


def eval_examples(config: Config) -> list[Example]:
    """The evaluation set a config names."""
    return load_examples(config.data.eval, config.eval.limit or None)


def train_run(config: Config, folder: RunFolder) -> Trainer:
    """Train to the end, or from where an earlier start of the same run stopped."""
    with waiting(f"loading {config.model.path} and {config.data.train}"):
        trainer = Trainer(config, folder)
    if trainer.step:
        console.print(f"continuing {folder.path} after step {trainer.step}", markup=False)
    with Progress(f"training ({config.method})", config.train.steps, trainer.step) as progress:
        trainer.train(lambda row: progress.update(row["step"], training_note(row)))
    return trainer


def quickstart_run(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Base accuracy, training, accuracy after; each part is skipped when the folder already holds it."""
    examples = eval_examples(config)
    base = folder.path / "eval" / "base"
    if load_summary(base) is None:
        outcomes = run_evaluation(config, examples, "base")
        folder.begin()
        save_evaluation(base, outcomes)
    train_run(config, folder)
    trained = folder.path / "eval" / "trained"
    if load_summary(trained) is None:
        save_evaluation(trained, run_evaluation(config, examples, "trained", resolve_adapter(folder.path)))
    return {"base": load_summary(base), "trained": load_summary(trained)}

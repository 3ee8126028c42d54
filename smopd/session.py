"""What the verbs do once their arguments are read: evaluate a model, train a run, the quickstart. Progress on standard error."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import PeftModel

from smopd.config import Config
from smopd.data import Example, load_examples, scorable
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, View, evaluate
from smopd.models import ChatModel, load_model, load_renderer, resolve_adapter
from smopd.progress import Progress, console, training_note, waiting
from smopd.results import load_summary, save_evaluation
from smopd.rollout import Driver, Sampling
from smopd.rollout.factory import make_engine
from smopd.rollout.openai import ChatDriver, ChatEndpoint
from smopd.rollout.vllm_shared import adapter_rank
from smopd.training.adapters import merged
from smopd.training.loop import Trainer
from smopd.training.run_folder import RunFolder


def device() -> str:
    """Where to compute: a GPU if torch sees one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def run_evaluation(
    config: Config, examples: Sequence[Example], label: str, adapter: Path | None = None
) -> dict[View, list[Outcome]]:
    """Play the configured views with a model, an adapter on it if given, or with an endpoint."""
    outcomes: dict[View, list[Outcome]] = {}
    with make_driver(config, adapter) as driver:
        # A group ends when its slowest conversation does: it is at least as large as what servers take at once.
        group = max(config.eval.batch, driver.endpoint.width) if isinstance(driver, ChatDriver) else config.eval.batch
        for view in config.eval.views:
            with Progress(f"{label} {view.upper()}", len(examples)) as progress:
                outcomes |= evaluate(driver, examples, [view], config.seed, group, lambda _, done, __: progress.update(done))
    return outcomes


@contextmanager
def make_driver(config: Config, adapter: Path | None = None) -> Iterator[Driver | ChatDriver]:
    """What plays the evaluation's conversations: the configured engine with the model, or an endpoint that needs neither."""
    sampling = Sampling(config.eval.temperature, config.eval.tokens)
    if config.engine.kind == "openai":
        if adapter:
            raise UserError(f"{adapter}: an endpoint plays the model it serves; load the adapter there (--served-model names it)")
        yield ChatDriver(ChatEndpoint(config.engine), sampling, config.eval.middle_tokens)
        return
    with TemporaryDirectory(prefix="smopd-") as scratch:
        if config.engine.kind == "hf":
            with waiting(f"loading {config.model.path}"):
                chat = load_model(config, device())
                renderer, model = chat.renderer, _with_adapter(chat, adapter) if adapter else chat.model
            engine = make_engine(config, renderer, config.eval.batch, Path(scratch), model)
            folded = merged(model) if adapter and config.rollout.merge else nullcontext()
        else:
            renderer, folded = load_renderer(config), nullcontext()
            with waiting(f"starting {config.engine.kind}"):
                rank = adapter_rank(adapter) if adapter else 0
                engine = make_engine(config, renderer, config.eval.batch, Path(scratch), rank=rank)
        try:
            if adapter:
                engine.refresh(1, lambda to: _copy_adapter(adapter, to))
            with folded:
                yield Driver(engine, renderer, sampling, config.eval.middle_tokens, config.chat.history)
        finally:
            engine.close()


def _copy_adapter(source: Path, to: Path) -> None:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if not (source / name).exists():
            raise UserError(f"{source}: holds no {name}; expected a PEFT adapter folder")
        copyfile(source / name, to / name)


def _with_adapter(chat: ChatModel, adapter: Path) -> PeftModel:
    try:
        return PeftModel.from_pretrained(chat.model, str(adapter)).eval()
    except (ValueError, RuntimeError, OSError) as error:
        raise UserError(f"{adapter}: the adapter does not fit the model: {str(error).strip().splitlines()[0]}") from None


def eval_examples(config: Config) -> list[Example]:
    """The evaluation set a config names."""
    return verifiable(load_examples(config.data.eval, config.eval.limit or None), config.data.eval)


def verifiable(examples: list[Example], name: str) -> list[Example]:
    """The same examples, once it is known that every reply to them can be scored here."""
    if any(example.task == "code" for example in scorable(examples, name)):
        from smopd.evaluation.sandbox import require

        require()
    return examples


def refuse_endpoint(config: Config) -> None:
    """Training needs the sampled token ids, which a chat endpoint does not give."""
    if config.engine.kind == "openai":
        raise UserError("engine.kind: openai is for evaluation only (smopd eval); train with hf, vllm or vllm-http")


def train_run(config: Config, folder: RunFolder) -> Trainer:
    """Train to the end, or from where an earlier start of the same run stopped."""
    refuse_endpoint(config)
    with waiting(f"loading {config.model.path} and {config.data.train}"):
        verifiable(load_examples(config.data.train, config.data.train_limit or None), config.data.train)
        trainer = Trainer(config, folder)
    if trainer.step:
        console.print(f"continuing {folder.path} after step {trainer.step}", markup=False)
    with Progress(f"training ({config.method})", config.train.steps, trainer.step) as progress:
        trainer.train(lambda row: progress.update(row["step"], training_note(row)))
    return trainer


def quickstart_run(config: Config, folder: RunFolder) -> dict[str, Any]:
    """Base accuracy, training, accuracy after; each part is skipped when the folder already holds it."""
    refuse_endpoint(config)
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

"""What the verbs do once their arguments are read: evaluate a model, train a run, the quickstart. Progress on
standard error.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import PeftModel

from smopd.cli.progress import Progress, console, waiting
from smopd.code_version import code_version
from smopd.config import Config
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, evaluate
from smopd.evaluation.metrics import summarise
from smopd.evaluation.simulated import SimulatedUser
from smopd.evaluation.store import EvaluationFolder, data_digest, load_summary
from smopd.files import digest, file_digest
from smopd.models import ChatModel, load_model, load_renderer, weights_digest
from smopd.models.adapters import merged
from smopd.rollout import Driver, Sampling
from smopd.rollout.factory import make_engine
from smopd.rollout.openai import ChatDriver, ChatEndpoint
from smopd.rollout.vllm_shared import adapter_rank


def device() -> str:
    """Where to compute: a GPU if torch sees one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def run_evaluation(
    config: Config,
    examples: Sequence[Example],
    label: str,
    adapter: Path | None = None,
    known: Sequence[Outcome] = (),
    record: Callable[[list[Outcome]], None] | None = None,
) -> list[Outcome]:
    """Play the configured views with a model, an adapter on it if given, or with an endpoint. `known` is not
    played again.
    """
    check_evaluation(config)
    views, runs = list(dict.fromkeys(config.eval.views)), config.eval.runs
    outcomes: list[Outcome] = []
    user = SimulatedUser(config.user) if "simulated" in views else None
    with make_driver(config, adapter) as driver:
        # A group ends when its slowest conversation does: it is at least as large as what servers take at
        # once.
        group = (
            max(config.eval.batch, driver.endpoint.width)
            if isinstance(driver, ChatDriver)
            else config.eval.batch
        )
        for view in views:
            had = [o for o in known if o.view == view]
            with Progress(f"{label} {view.upper()}", len(examples) * runs, len(had)) as progress:

                def advance(fresh: list[Outcome], progress: Progress = progress) -> None:
                    if record:
                        record(fresh)
                    progress.update(progress.done + len(fresh))

                outcomes += evaluate(driver, examples, [view], runs, config.seed, group, had, advance, user)
    return outcomes


def check_evaluation(config: Config) -> None:
    """A UserError for settings that contradict each other."""
    if config.eval.runs > 1 and config.eval.temperature == 0 and config.engine.kind != "openai":
        raise UserError(
            f"eval.runs: {config.eval.runs} greedy runs would all be the same; LiC's runs are sampled: --set eval.temperature=1.0"
        )
    if "simulated" in config.eval.views and not config.user.servers:
        raise UserError(
            "eval.views: in the view simulated a model plays the user; name its endpoint, e.g. --user-url http://localhost:8000"
        )


def evaluate_into(
    path: Path,
    config: Config,
    examples: Sequence[Example],
    label: str,
    adapter: Path | None = None,
    begin: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """The summary of an evaluation kept in a folder: played, continued, or only read where it is already
    finished.
    """
    folder = EvaluationFolder(path, identity(config, examples, adapter))
    finished = load_summary(path)
    if finished is not None:
        return finished

    def record(fresh: list[Outcome]) -> None:
        if begin:
            begin()
        folder.add(fresh)

    with folder:
        known = folder.outcomes()
        if known:
            console.print(f"continuing {path} after {len(known)} conversations", markup=False, soft_wrap=True)
        outcomes = run_evaluation(config, examples, label, adapter, known, record)
        summary = summarise(outcomes) | {"code": code_version()}
        folder.finish(outcomes, summary)
    return summary


def identity(config: Config, examples: Sequence[Example], adapter: Path | None) -> dict[str, Any]:
    """Everything the conversations of an evaluation depend on."""
    endpoint = config.engine.kind == "openai"
    own = (
        digest([Path(f).read_text(encoding="utf-8") for f in config.data.verifiers])
        if config.data.verifiers
        else None
    )
    return {
        "model": config.engine.model or config.model.path if endpoint else config.model.path,
        "weights": None if endpoint else weights_digest(config),
        "adapter": file_digest(adapter / "adapter_model.safetensors") if adapter else None,
        "data": config.data.eval,
        "examples": data_digest(examples),
        "verifiers": own,
        "databases": config.data.databases,
        "seed": config.seed,
        "engine": config.engine.kind,
        "dtype": config.model.dtype,
        "quantize": config.model.quantize,
        "chat": config.chat.model_dump(),
        "eval": config.eval.model_dump(),
        "user": {k: getattr(config.user, k) for k in ("model", "temperature")}
        if "simulated" in config.eval.views
        else None,
    }


@contextmanager
def make_driver(config: Config, adapter: Path | None = None) -> Iterator[Driver | ChatDriver]:
    """What plays the evaluation's conversations: the configured engine with the model, or an endpoint that
    needs neither.
    """
    sampling = Sampling(config.eval.temperature, config.eval.tokens)
    if config.engine.kind == "openai":
        if adapter:
            raise UserError(
                f"{adapter}: an endpoint plays the model it serves; load the adapter there (--served-model names it)"
            )
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
        raise UserError(
            f"{adapter}: the adapter does not fit the model: {str(error).strip().splitlines()[0]}"
        ) from None

"""A whole evaluation: the views of a config played with a model, kept in a folder and continued there."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from smopd.code_version import code_version
from smopd.config import Config
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, evaluate
from smopd.evaluation.metrics import summarise
from smopd.evaluation.simulated import SimulatedUser
from smopd.evaluation.store import EvaluationFolder, data_digest, load_summary
from smopd.evaluation.tokens import TokenRecorder
from smopd.files import digest, file_digest
from smopd.models.loading import weights_digest
from smopd.rollout.assembly import evaluation_driver
from smopd.rollout.choice import resolve_engine
from smopd.rollout.driver import Driver
from smopd.rollout.engine import traits_of
from smopd.rollout.openai import ChatDriver
from smopd.tracking import Track, Update, quiet
from smopd.verify import tasks

log = logging.getLogger("smopd")


def run_evaluation(
    config: Config, examples: Sequence[Example], label: str, adapter: Path | None = None,
    known: Sequence[Outcome] = (), record: Callable[[list[Outcome]], None] = lambda fresh: None,
    track: Track = quiet, tokens: Path | None = None, begin: Callable[[], None] = lambda: None,
) -> list[Outcome]:  # fmt: skip
    """Play the views with a model and its adapter, or an endpoint. What is `known` is not played again.

    `tokens`: the folder of the token log, where one is asked for; `begin` is called before it is written.
    """
    check_evaluation(config)
    views, runs, group = list(dict.fromkeys(config.eval.views)), config.eval.runs, config.eval.batch
    outcomes: list[Outcome] = []
    user = SimulatedUser(config.user).converse if "simulated" in views else None
    with evaluation_driver(config, adapter, track) as driver:
        # A group ends when its slowest conversation does: it is at least as large as what servers take.
        if isinstance(driver, ChatDriver):
            group = max(group, driver.endpoint.width)
        watch = None
        if tokens and config.eval.save_tokens:
            assert isinstance(driver, Driver)
            settings = config.eval.alternatives, config.train.row_tokens
            watch = TokenRecorder(tokens, driver, *settings, begin)
        for view in views:
            old = [o for o in known if o.view == view]
            done = len(old)
            with track(f"{label} {view.upper()}", len(examples) * runs, done) as update:

                def advance(fresh: list[Outcome], update: Update = update) -> None:
                    nonlocal done
                    record(fresh)
                    done += len(fresh)
                    update(done)

                outcomes += evaluate(
                    driver, examples, [view], runs, config.seed, group, old, advance, user, watch
                )
    return outcomes


def check_evaluation(config: Config) -> None:
    """A UserError for settings that contradict each other."""
    token_ids = traits_of(config.engine.kind).token_ids
    if config.eval.save_tokens and config.engine.kind not in ("hf", "auto"):
        needs = "the replies are scored once more, by the model in this process"
        raise UserError(f"eval.save_tokens: {needs}; set engine.kind=hf")
    if config.eval.runs > 1 and config.eval.temperature == 0 and token_ids:
        greedy = f"{config.eval.runs} greedy runs would all be the same"
        raise UserError(f"eval.runs: {greedy}; LiC's runs are sampled: --set eval.temperature=1.0")
    if "simulated" in config.eval.views and not config.user.servers:
        advice = "name its endpoint, e.g. --user-url http://localhost:8000"
        raise UserError(f"eval.views: in the view simulated a model plays the user; {advice}")


def evaluate_into(
    path: Path, config: Config, examples: Sequence[Example], label: str, adapter: Path | None = None,
    begin: Callable[[], None] = lambda: None, track: Track = quiet,
) -> dict[str, Any]:  # fmt: skip
    """The summary of an evaluation kept in a folder: played, continued, or only read where it is finished."""
    config = resolve_engine(config)
    folder = EvaluationFolder(path, identity(config, examples, adapter))
    if (finished := load_summary(path)) is not None:
        return finished

    def record(fresh: list[Outcome]) -> None:
        begin()
        folder.add(fresh)

    with folder:
        if known := folder.outcomes():
            log.info("continuing %s after %d conversations", path, len(known))
        outcomes = run_evaluation(
            config, examples, label, adapter, known, record, track, path / "tokens", begin
        )
        summary = summarise(outcomes) | {"rules": rules_in_force(examples), "code": code_version()}
        folder.finish(outcomes, summary)
    return summary


def rules_in_force(examples: Sequence[Example]) -> dict[str, str]:
    """By which rule replies are judged, by task, for those tasks that have a choice."""
    named = {task: tasks.rule(task) for task in sorted({example.task for example in examples})}
    return {task: rule for task, rule in named.items() if rule}


def identity(config: Config, examples: Sequence[Example], adapter: Path | None) -> dict[str, Any]:
    """Everything the conversations of an evaluation depend on."""
    endpoint = not traits_of(config.engine.kind).token_ids
    verifiers = [Path(file).read_text(encoding="utf-8") for file in config.data.verifiers]
    user = {"model": config.user.model, "temperature": config.user.temperature}
    return {
        "model": config.engine.model or config.model.path if endpoint else config.model.path,
        "weights": None if endpoint else weights_digest(config),
        "adapter": file_digest(adapter / "adapter_model.safetensors") if adapter else None,
        "data": config.data.eval,
        "examples": data_digest(examples),
        "verifiers": digest(verifiers) if verifiers else None,
        "databases": config.data.databases,
        "rules": rules_in_force(examples),
        "seed": config.seed,
        "engine": config.engine.kind,
        "dtype": config.model.dtype,
        "quantize": config.model.quantize,
        "chat": config.chat.model_dump(),
        "eval": config.eval.model_dump(exclude={"save_tokens", "alternatives"}),  # no reply depends on them
        "user": user if "simulated" in config.eval.views else None,
    }

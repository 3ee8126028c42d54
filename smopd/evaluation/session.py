"""Run an evaluation: play the views of a config with a model, in a folder from which it can resume."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from smopd.chat.messages import Clean, View
from smopd.chat.template import refuse_too_long
from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, Player, evaluate
from smopd.evaluation.metrics import summarise
from smopd.evaluation.simulated import SimulatedUser
from smopd.evaluation.store import EvaluationFolder, data_digest, load_summary
from smopd.evaluation.tokens import TokenRecorder
from smopd.files import digest, file_digest, read_python
from smopd.machine import code_version
from smopd.models.adapter_files import TEACHER_WEIGHTS, WEIGHTS, averaged_teacher
from smopd.models.loading import check_model, weights_digest
from smopd.rollout.driver import Driver
from smopd.rollout.engine import refuse_unready, resolve_engine, traits_of
from smopd.rollout.openai import ChatDriver
from smopd.tracking import Track, quiet
from smopd.verify import tasks

# Settings of [eval] that do not identify an evaluation; `clean` does if a teacher plays.
NO_PART = {"clean", "save_tokens", "save_tokens_limit", "alternatives"}
log = logging.getLogger("smopd")


def run_evaluation(
    config: Config, examples: Sequence[Example], label: str, adapter: Path | None = None,
    known: Sequence[Outcome] = (), record: Callable[[list[Outcome]], None] = lambda fresh: None,
    track: Track = quiet, tokens: Path | None = None, begin: Callable[[], None] = lambda: None,
) -> list[Outcome]:  # fmt: skip
    """Play the views with a model and its adapter, or an endpoint. `known` outcomes are not played again.
    `tokens`: folder of the token log, if enabled; `begin` is called before it is written.
    """
    from smopd.rollout.assembly import evaluation_driver

    check_evaluation(config)
    views = list(dict.fromkeys(config.eval.views))
    # A teacher with its own weights plays after the student.
    apart: list[View] = ["teacher"] if "teacher" in views and teacher_file(adapter) else []
    logged = {example.id for example in examples[: config.eval.save_tokens_limit or None]}
    outcomes: dict[View, list[Outcome]] = {}
    for chosen in filter(None, ([view for view in views if view not in apart], apart)):
        averaged = averaged_teacher(adapter) if adapter and chosen is apart else nullcontext(adapter)
        with averaged as weights, evaluation_driver(config, weights, track) as driver:
            driver, watch = replace(driver, clean=clean_form(config)), None
            if isinstance(driver, Driver):
                refuse_too_long(driver.renderer, examples, views)
                if tokens and config.eval.save_tokens:
                    limits = config.eval.alternatives, config.train.row_tokens
                    watch = TokenRecorder(tokens, driver, *limits, begin, logged)
            for view in chosen:
                old = [o for o in known if o.view == view]
                outcomes[view] = _play(driver, config, examples, view, old, record, label, track, watch)
    return [outcome for view in views for outcome in outcomes[view]]


def _play(
    driver: Player, config: Config, examples: Sequence[Example], view: View, known: Sequence[Outcome],
    record: Callable[[list[Outcome]], None], label: str, track: Track, watch: TokenRecorder | None = None,
) -> list[Outcome]:  # fmt: skip
    runs, group, done, replies = config.eval.runs, config.eval.batch, len(known), 0
    # A group waits for its slowest conversation, so it is at least as large as the servers' concurrency.
    if isinstance(driver, ChatDriver):
        group = max(group, driver.endpoint.width)
    user = SimulatedUser(config.user).converse if view == "simulated" else None
    lock = Lock()  # endpoints reply in threads
    with track(f"{label} {view.upper()}", len(examples) * runs, done) as update:

        def hear(count: int) -> None:
            nonlocal replies
            with lock:
                replies += count
                update(done, f"{replies:,} {'reply' if replies == 1 else 'replies'}")

        def advance(fresh: list[Outcome]) -> None:
            nonlocal done, replies
            record(fresh)
            with lock:
                done, replies = done + len(fresh), 0
                update(done)

        player = replace(driver, heard=hear)
        return evaluate(player, examples, [view], runs, config.seed, group, known, advance, user, watch)


def teacher_file(adapter: Path | None) -> Path | None:
    """The file of a checkpoint's EMA teacher, if it has one."""
    return file if adapter and (file := adapter / TEACHER_WEIGHTS).exists() else None


def clean_form(config: Config) -> Clean:
    return plan_of(config).clean if config.eval.clean == "method" else config.eval.clean


def check_evaluation(config: Config) -> None:
    """Raise a UserError for settings that contradict each other, or a model that cannot be loaded."""
    token_ids, settings = traits_of(config.engine.kind).token_ids, config.eval
    if settings.save_tokens and config.engine.kind not in ("hf", "auto"):
        needs = "the replies are scored once more, by the model in this process"
        raise UserError(f"eval.save_tokens: {needs}; set engine.kind=hf")
    if settings.runs > 1 and settings.temperature == 0 and token_ids:
        greedy = f"{settings.runs} greedy runs would all be the same"
        raise UserError(f"eval.runs: {greedy}; LiC's runs are sampled: --set eval.temperature=1.0")
    if "simulated" in settings.views and not config.user.servers:
        advice = "name its endpoint, e.g. --user-url http://localhost:8000"
        raise UserError(f"eval.views: in the view simulated a model plays the user; {advice}")
    refuse_unready(config.engine)
    if token_ids:
        check_model(config)


def evaluate_into(
    path: Path, config: Config, examples: Sequence[Example], label: str, adapter: Path | None = None,
    begin: Callable[[], None] = lambda: None, track: Track = quiet,
) -> dict[str, Any]:  # fmt: skip
    """Run or resume an evaluation in a folder, or read it if it is finished; return its summary."""
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
        if "teacher" in config.eval.views:
            weights = "averaged" if teacher_file(adapter) else "model"
            summary["teacher"] = {"weights": weights, "clean": clean_form(config)}
        folder.finish(outcomes, summary)
    return summary


def rules_in_force(examples: Sequence[Example]) -> dict[str, str]:
    """The rule by which replies are judged, for each task that has a choice."""
    named = {task: tasks.rule(task) for task in sorted({example.task for example in examples})}
    return {task: rule for task, rule in named.items() if rule}


def identity(config: Config, examples: Sequence[Example], adapter: Path | None) -> dict[str, Any]:
    """Everything the conversations of an evaluation depend on."""
    endpoint = not traits_of(config.engine.kind).token_ids
    verifiers = [read_python(Path(file).expanduser()) for file in config.data.verifiers]
    user = {"model": config.user.model, "temperature": config.user.temperature}
    teacher = {}
    if "teacher" in config.eval.views:
        path = teacher_file(adapter)
        teacher = {"teacher": {"weights": file_digest(path) if path else None, "clean": clean_form(config)}}
    return {
        "model": config.engine.model or config.model.path if endpoint else config.model.path,
        "weights": None if endpoint else weights_digest(config),
        "adapter": file_digest(adapter / WEIGHTS) if adapter else None,
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
        "eval": config.eval.model_dump(exclude=NO_PART),
        "user": user if "simulated" in config.eval.views else None,
        **teacher,
    }

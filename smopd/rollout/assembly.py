"""Puts model, engine and driver together: for training, for evaluation, for base and trained side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from smopd.chat import Renderer
from smopd.devices import default_device
from smopd.errors import UserError
from smopd.models import load_model, load_renderer
from smopd.models.adapter_files import check_fit, copy_adapter, largest_rank, load_adapter
from smopd.models.loading import check_model, skeleton
from smopd.plugins import calling, load_python, unexpected
from smopd.rollout.driver import Driver
from smopd.rollout.engine import TRAITS, Engine, Sampling, resolve_engine, traits_of
from smopd.rollout.openai import ChatDriver, ChatEndpoint
from smopd.settings import Settings
from smopd.tracking import Track, quiet

if TYPE_CHECKING:
    from peft import PeftModel
    from torch.nn import Module

Player = Driver | ChatDriver


def refuse_endpoint(settings: Settings) -> None:
    """A UserError for an engine without token ids, which training needs."""
    if not traits_of(settings.engine.kind).token_ids:
        instead = "(smopd eval); train with hf, vllm or vllm-http"
        raise UserError(f"engine.kind: {settings.engine.kind} is for evaluation only {instead}")


def refuse_processes(settings: Settings, count: int) -> None:
    """A UserError for vLLM inside of several processes: it would take the first GPU in every one of them."""
    kind = settings.engine.kind
    if count > 1 and kind in TRAITS and not traits_of(kind).in_place and not traits_of(kind).remote:
        way = "start servers and set engine.kind=vllm-http (docs/gpu.md), or engine.kind=hf"
        raise UserError(f"engine.kind: {kind} samples in one process only, and this run has {count}; {way}")


def make_engine(
    settings: Settings, renderer: Renderer, batch: int, folder: Path,
    model: Module | None = None, rank: int = 0,
) -> Engine:  # fmt: skip
    """The engine that the settings name: around `model`, or with adapters up to `rank` through `folder`."""
    settings = resolve_engine(settings)
    refuse_endpoint(settings)
    kind, traits = settings.engine.kind, traits_of(settings.engine.kind)
    if kind not in TRAITS:
        make = getattr(load_python(Path(kind)), "make_engine", None)
        if not callable(make):
            raise UserError(f"engine.kind: {kind} has no function make_engine(settings, renderer, model)")
        with calling(make, lambda: f"make_engine of {kind}"):
            engine: Engine = make(settings, renderer, model)
            if not callable(getattr(engine, "generate", None)):
                raise unexpected(engine, "an engine, with a method generate")
        return engine
    if traits.in_place:
        assert model is not None
        from smopd.rollout.hf import HFEngine

        return HFEngine(model, renderer.end_ids, batch, settings.engine.cache_mb)
    if traits.remote:
        from smopd.rollout.vllm_http import VLLMServers

        return VLLMServers(settings, renderer.end_ids, renderer.vocabulary, folder, renderer.encode, rank)
    from smopd.rollout.vllm_local import VLLMEngine

    return VLLMEngine(settings, renderer.end_ids, renderer.vocabulary, rank)


def training_driver(settings: Settings, renderer: Renderer, model: PeftModel, folder: Path) -> Driver:
    """Plays rollouts with the student. Engines with weights of their own get its adapter through `folder`."""
    rollout = settings.rollout
    sampling = Sampling(rollout.temperature, rollout.answer_tokens, rollout.top_p, rollout.top_k)
    engine = make_engine(settings, renderer, rollout.batch, folder, model, largest_rank(model))
    return Driver(engine, renderer, sampling, rollout.middle_tokens, settings.chat.history)


def evaluation_sampling(settings: Settings) -> Sampling:
    return Sampling(settings.eval.temperature, settings.eval.tokens)


@contextmanager
def evaluation_driver(
    settings: Settings, adapter: Path | None = None, track: Track = quiet
) -> Iterator[Player]:
    sampling, limit = evaluation_sampling(settings), settings.eval.middle_tokens
    if not traits_of(settings.engine.kind).token_ids:
        if adapter:
            advice = "load the adapter there (--served-model names it)"
            raise UserError(f"{adapter}: an endpoint plays the model it serves; {advice}")
        yield ChatDriver(ChatEndpoint(settings.engine), sampling, limit)
        return
    check_model(settings)
    settings = resolve_engine(settings)
    kind, batch = settings.engine.kind, settings.eval.batch
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="smopd-")))
        if traits_of(kind).in_place:
            with track(f"loading {settings.model.path}"):
                chat = load_model(settings, default_device())
                renderer, model = chat.renderer, load_adapter(chat.model, adapter) if adapter else chat.model
            engine = make_engine(settings, renderer, batch, folder, model)
            if adapter and settings.rollout.merge:
                from smopd.models.adapters import merged

                stack.enter_context(merged(model))
        else:
            renderer = load_renderer(settings)
            # Compared here, since servers pass over tensors that are missing.
            rank = largest_rank(check_fit(skeleton(settings), adapter)) if adapter else 0
            with track(f"starting {kind}"):
                engine = make_engine(settings, renderer, batch, folder, rank=rank)
        stack.callback(engine.close)
        if adapter:
            engine.refresh(1, partial(copy_adapter, adapter))
        yield Driver(engine, renderer, sampling, limit, settings.chat.history)


@contextmanager
def base_and_trained(
    settings: Settings, adapter: Path, start: Path | None = None, track: Track = quiet
) -> Iterator[dict[str, Player]]:
    """Both sides of a run inside this block; `start`: an adapter it began with, which is part of its base."""
    settings = resolve_engine(settings)
    kind, traits = settings.engine.kind, traits_of(settings.engine.kind)
    if not traits.in_place and not traits.remote:
        advice = "add --engine hf, or leave the base out with --no-base"
        raise UserError(f"engine.kind: {kind} holds one set of weights in this process; {advice}")
    with ExitStack() as stack:
        if start or not traits.in_place:
            base = stack.enter_context(evaluation_driver(settings, start, track))
            yield {"base": base, "trained": stack.enter_context(evaluation_driver(settings, adapter, track))}
            return
        with track(f"loading {settings.model.path}"):
            chat = load_model(settings, default_device())
            model = load_adapter(chat.model, adapter)
        how = chat.renderer, evaluation_sampling(settings), settings.eval.middle_tokens, settings.chat.history
        players: dict[str, Player] = {}
        for name in ("base", "trained"):
            engine = make_engine(settings, chat.renderer, 1, Path(), model)
            stack.callback(engine.close)
            if name == "base":  # the adapter is switched off while it samples
                engine.generate = model.disable_adapter()(engine.generate)  # type: ignore[method-assign]
            players[name] = Driver(engine, *how)
        yield players

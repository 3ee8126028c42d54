"""Base and trained side by side: over one set of weights where the engine samples in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from smopd.devices import default_device
from smopd.errors import UserError
from smopd.models import load_model
from smopd.models.adapter_files import load_adapter
from smopd.rollout.assembly import evaluation_driver, evaluation_sampling, make_engine
from smopd.rollout.choice import resolve_engine
from smopd.rollout.driver import Driver
from smopd.rollout.engine import (
    Engine,
    Prompts,
    Sampled,
    Sampling,
    SaveAdapter,
    Sessions,
    Traits,
    Usage,
    traits_of,
)
from smopd.rollout.openai import ChatDriver
from smopd.settings import Settings
from smopd.tracking import Track, quiet

if TYPE_CHECKING:
    from peft import PeftModel

Player = Driver | ChatDriver


class WithoutAdapter:
    """An engine that samples from the base alone: the adapter is switched off while it does."""

    def __init__(self, engine: Engine, model: PeftModel) -> None:
        self.engine, self.model = engine, model
        self.traits: Traits = engine.traits
        self.usage: Usage = engine.usage

    def generate(
        self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, sessions: Sessions = None
    ) -> list[Sampled]:
        """Replies in the order of the prompts."""
        with self.model.disable_adapter():
            return self.engine.generate(prompts, seeds, sampling, sessions)

    def refresh(self, version: int, save: SaveAdapter) -> None:
        """The base never changes."""

    def sleep(self) -> None:
        """Give memory back."""
        self.engine.sleep()

    def close(self) -> None:
        """End what the engine started."""
        self.engine.close()


@contextmanager
def base_and_trained(
    settings: Settings, adapter: Path, start: Path | None = None, track: Track = quiet
) -> Iterator[dict[str, Player]]:
    """Both sides of a run inside this block. `start`: an adapter it began with, which is part of its base."""
    settings = resolve_engine(settings)
    kind, traits = settings.engine.kind, traits_of(settings.engine.kind)
    if not traits.in_place and not traits.remote:
        what = f"engine.kind: {kind} holds one set of weights in this process"
        raise UserError(f"{what}; add --engine hf, or leave the base out with --no-base")
    with ExitStack() as stack:
        if start or not traits.in_place:
            base = stack.enter_context(evaluation_driver(settings, start, track))
            yield {"base": base, "trained": stack.enter_context(evaluation_driver(settings, adapter, track))}
            return
        with track(f"loading {settings.model.path}"):
            chat = load_model(settings, default_device())
            model = load_adapter(chat.model, adapter)
        engines = [make_engine(settings, chat.renderer, 1, Path(), model) for _ in range(2)]
        for engine in engines:
            stack.callback(engine.close)
        how = chat.renderer, evaluation_sampling(settings), settings.eval.middle_tokens, settings.chat.history
        yield {"base": Driver(WithoutAdapter(engines[0], model), *how), "trained": Driver(engines[1], *how)}

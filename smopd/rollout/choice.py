"""Which engine `engine.kind = "auto"` is. A run folder keeps "auto": it may go on where that is another."""

import logging
from functools import cache
from pathlib import Path
from typing import TypeVar

from smopd.machine import engine_facts
from smopd.settings import AUTO, Settings

log = logging.getLogger("smopd")
S = TypeVar("S", bound=Settings)


def choose_engine(settings: Settings, cuda: bool, vllm: bool, processes: int) -> tuple[str, str]:
    """Engine and reason, from whether there is a CUDA device and vLLM, and how many processes train."""
    if not cuda:
        return "hf", "no CUDA device"
    if settings.model.quantize != "none":
        return "hf", "vLLM would sample from another model than the quantized one that is trained"
    if Path(settings.model.path).suffix == ".gguf":
        return "hf", "a GGUF file, whose weights transformers reads into plain numbers"
    if not vllm:
        return "hf", "vLLM is not installed: make gpu"
    if processes > 1:
        # vLLM in a process takes torch's default process group for its own, and that is the trainer's here.
        # Servers sample for all processes.
        return "hf", f"{processes} processes; engine.kind=vllm-http would sample with servers"
    return "vllm", "CUDA device and vLLM found"


def with_chosen_engine(settings: S, cuda: bool, vllm: bool, processes: int) -> S:
    if settings.engine.kind != AUTO:
        return settings
    kind, _ = choose_engine(settings, cuda, vllm, processes)
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"kind": kind})})


def resolve_engine(settings: S) -> S:
    """The settings with a concrete engine, for this machine; logs once which one and why."""
    if settings.engine.kind != AUTO:
        return settings
    _log_once(engine_line(settings))
    return with_chosen_engine(settings, *engine_facts())


def engine_line(settings: Settings) -> str:
    """What `auto` is on this machine, and why; empty for a concrete engine."""
    if settings.engine.kind != AUTO:
        return ""
    return "engine.kind auto: {} ({})".format(*choose_engine(settings, *engine_facts()))


_log_once = cache(log.info)

"""Which engine a plan is about. `auto` is vLLM in the process of one GPU, vLLM assumed to be installed."""

from smopd.config import Config
from smopd.planning.gpus import Gpu
from smopd.rollout.choice import with_chosen_engine
from smopd.rollout.engine import Traits, traits_of
from smopd.settings import AUTO


def engine_on(config: Config, gpu: Gpu, gpus: int = 1) -> Config:
    """The config with the engine that a run with `auto` would choose there."""
    return with_chosen_engine(config, gpu.name != "cpu", True, gpus)


def engine_traits(config: Config) -> Traits:
    """What the engine can do; `auto` counts as vLLM."""
    return traits_of("vllm" if config.engine.kind == AUTO else config.engine.kind)

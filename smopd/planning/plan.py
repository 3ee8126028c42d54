"""A plan: does a recipe fit on given GPUs, how long does it take, what to change where it does not fit."""

from dataclasses import dataclass, replace
from typing import Any

from smopd.config import Config
from smopd.planning.averages import Averages, find_averages
from smopd.planning.gpus import Gpu, engine_on
from smopd.planning.load import Load, engine_traits, step_load
from smopd.planning.memory import Memory, memory
from smopd.planning.shapes import Shape
from smopd.planning.timing import MFU, step_seconds

Change = tuple[str, Any]  # a setting and its new value
WORTH = 0.99  # a change that leaves more of the peak than this is not proposed


@dataclass(frozen=True)
class ResourcePlan:
    """What `smopd plan` knows of one recipe."""

    config: Config  # as planned: with train.shard where the weights had to be split
    shape: Shape
    gpu: Gpu
    gpus: int
    lengths: Averages
    load: Load
    memory: Memory
    seconds: dict[str, float]  # of a step, by part
    at_limits: float  # seconds of a step in which every reply reaches its limit
    replicated: float  # peak with whole weights on every GPU
    changes: list[Change]  # what makes it fit, if it does not
    changed_peak: float  # with them
    mfu: float
    asked: str  # the engine that the recipe names; `config` has the one that is planned

    @property
    def sharded(self) -> bool:
        """Whether the base weights are split among the GPUs."""
        return self.gpus > 1 and self.config.train.shard

    @property
    def fits(self) -> bool:
        """On one GPU's memory."""
        return self.memory.peak <= self.gpu.memory * 1e9

    @property
    def step(self) -> float:
        """Seconds."""
        return sum(self.seconds.values())

    @property
    def minutes(self) -> float:
        """Of the whole run."""
        return self.step * self.config.train.steps / 60

    @property
    def minutes_at_limits(self) -> float:
        """Of a run in which every reply reaches its limit."""
        return self.at_limits * self.config.train.steps / 60

    @property
    def largest(self) -> str:
        """The part that takes most memory."""
        return max(self.memory.parts, key=lambda name: self.memory.parts[name])


def make_plan(
    config: Config, shape: Shape, gpu: Gpu, gpus: int = 1, mfu: float = MFU,
    middle: float | None = None, answer: float | None = None,
) -> ResourcePlan:  # fmt: skip
    """Plan a recipe. On several GPUs whose memory is too small for whole weights the weights are sharded."""
    asked = config.engine.kind
    config = engine_on(config, gpu, gpus)
    lengths = find_averages(config, middle, answer)
    needs = memory(config, shape, gpu, lengths, gpus)
    replicated, room = needs.peak, gpu.memory * 1e9
    if gpus > 1 and replicated > room and not config.train.shard:
        config = changed(config, ("train.shard", True))
        needs = memory(config, shape, gpu, lengths, gpus)
    longest = replace(lengths, middle=config.rollout.middle_tokens, answer=config.rollout.answer_tokens)
    loads = [step_load(config, of, gpus, gpu.is_gpu) for of in (lengths, longest)]
    seconds, limits = (step_seconds(config, shape, gpu, load, gpus, mfu) for load in loads)
    changes = fitting_changes(config, shape, gpu, lengths, gpus) if needs.peak > room else []
    after = memory(changed(config, *changes), shape, gpu, lengths, gpus).peak
    results = (seconds, sum(limits.values()), replicated, changes, after, mfu, asked)
    return ResourcePlan(config, shape, gpu, gpus, lengths, loads[0], needs, *results)


def changed(config: Config, *changes: Change) -> Config:
    """The config with some settings replaced."""
    for key, value in changes:
        table, field = key.split(".")
        config = config.model_copy(update={table: getattr(config, table).model_copy(update={field: value})})
    return config


def fitting_changes(config: Config, shape: Shape, gpu: Gpu, lengths: Averages, gpus: int) -> list[Change]:
    """The settings that make it fit, cheapest first and none too many; all that help, where nothing does."""
    room = gpu.memory * 1e9

    def peak(changes: list[Change]) -> float:
        return memory(changed(config, *changes), shape, gpu, lengths, gpus).peak

    chosen: list[Change] = []
    for change in _proposals(config, gpus):
        if peak([*chosen, change]) < WORTH * peak(chosen):
            chosen.append(change)
        if peak(chosen) <= room:
            break
    else:
        return chosen
    for change in list(chosen):
        without = [c for c in chosen if c != change]
        if peak(without) <= room:
            chosen = without
    return chosen


def _proposals(config: Config, gpus: int) -> list[Change]:
    traits, sharded = engine_traits(config), config.train.shard
    local_vllm = not traits.remote and not traits.in_place
    # Sharded weights are split by rows of numbers; packed 4-bit ones have none.
    packs = gpus == 1 and config.model.quantize == "none" and config.model.dtype != "float32"
    in_order_of_cost: list[tuple[bool, str, Any]] = [
        (local_vllm and not config.engine.sleep, "engine.sleep", True),
        (config.train.micro_batch > 1, "train.micro_batch", 1),
        (not config.train.recompute, "train.recompute", True),
        # Wide rows repeat fewer tokens, narrow ones need less for recomputation: the data decide.
        (True, "train.row_tokens", 8192),
        (True, "train.row_tokens", 1024),
        (config.rollout.merge, "rollout.merge", False),
        (not traits.remote, "engine.kind", "vllm-http"),
        (gpus > 1 and not sharded, "train.shard", True),
        (packs, "model.quantize", "nf4"),
    ]
    return [(key, value) for possible, key, value in in_order_of_cost if possible]

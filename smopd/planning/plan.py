"""Plan a recipe: does it fit on given GPUs, how long does it take, and what to change if it does not fit?

Seconds are rough: counted tokens and bytes over published rates. Every assumption is a constant here; none
was measured on a GPU. Not counted: attention's products, the update, verifiers, files, compilation and graph
capture, waiting for the slowest process.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from smopd.config import Config
from smopd.planning.load import Averages, Load, find_averages, step_load
from smopd.planning.memory import FLOAT, WIDTHS, Memory, cache_token_bytes, memory, weight_bytes
from smopd.planning.shapes import Gpu, Shape, adapted_projections
from smopd.rollout.engine import traits_of, with_chosen_engine

Change = tuple[str, Any]  # a setting and its new value
WORTH = 0.99  # a change must bring the peak below this share of it
MFU = 0.35  # share of the published rate that matmuls of a few thousand tokens reach
BANDWIDTH = 0.8  # share of the published bandwidth
# Seconds per decoder layer and sampled token, whatever its size: launched by torch with a separate adapter or
# a merged one (tools/issue_time.py measures both), replayed from a CUDA graph, or by vLLM's CUDA graphs.
ISSUED, ISSUED_MERGED = 1.5e-3, 1.1e-3
REPLAYED, REPLAYED_MERGED = 2.5e-4, 1.5e-4
VLLM = 1.0e-4
HANDOVER = 1.0e9  # bytes per second from the student's adapter to vLLM's copy of it


@dataclass(frozen=True)
class ResourcePlan:
    config: Config  # as planned: with train.shard if the weights must be split
    asked: str  # the engine that the recipe names; `config` has the one that is planned
    shape: Shape
    gpu: Gpu
    gpus: int
    mfu: float
    lengths: Averages
    load: Load
    memory: Memory
    replicated: float  # peak with whole weights on every GPU
    changes: list[Change]  # what makes it fit, if it does not
    changed_peak: float  # with them
    seconds: dict[str, float]  # of a step, by part
    minutes: float  # of the whole run
    minutes_at_limits: float  # of a run in which every reply reaches its limit

    @property
    def sharded(self) -> bool:
        return self.gpus > 1 and self.config.train.shard

    @property
    def fits(self) -> bool:
        return self.memory.peak <= self.gpu.bytes

    @property
    def step(self) -> float:
        return whole_step(self.config, self.seconds)


def make_plan(
    config: Config, shape: Shape, gpu: Gpu, gpus: int = 1, mfu: float = MFU,
    middle: float | None = None, answer: float | None = None,
) -> ResourcePlan:  # fmt: skip
    """Plan a recipe, with vLLM if `auto` may choose it; shard weights that are too large for one GPU."""
    asked, config = config.engine.kind, with_chosen_engine(config, gpu.is_gpu, True, gpus)
    lengths = find_averages(config, middle, answer)
    replicated = memory(config, shape, gpu, lengths, gpus).peak
    if gpus > 1 and replicated > gpu.bytes and not config.train.shard:
        config = changed(config, ("train.shard", True))
    needs = memory(config, shape, gpu, lengths, gpus)
    changes = fitting_changes(config, shape, gpu, lengths, gpus) if needs.peak > gpu.bytes else []
    after = memory(changed(config, *changes), shape, gpu, lengths, gpus).peak
    longest = replace(lengths, middle=config.rollout.middle_tokens, answer=config.rollout.answer_tokens)
    load, at_limits = (step_load(config, some, gpus, gpu.is_gpu) for some in (lengths, longest))
    seconds, longer = (step_seconds(config, shape, gpu, one, gpus, mfu) for one in (load, at_limits))
    minutes = (whole_step(config, parts) * config.train.steps / 60 for parts in (seconds, longer))
    fitting = needs, replicated, changes, after
    return ResourcePlan(config, asked, shape, gpu, gpus, mfu, lengths, load, *fitting, seconds, *minutes)


def whole_step(config: Config, seconds: dict[str, float]) -> float:
    """Seconds of one training step; with rollout.overlap, sampling runs beside the other parts."""
    rest = sum(took for part, took in seconds.items() if part != "sampling")
    return max(seconds["sampling"], rest) if config.rollout.overlap else seconds["sampling"] + rest


def changed(config: Config, *changes: Change) -> Config:
    for key, value in changes:
        table, field = key.split(".")
        config = config.model_copy(update={table: getattr(config, table).model_copy(update={field: value})})
    return config


def fitting_changes(config: Config, shape: Shape, gpu: Gpu, lengths: Averages, gpus: int) -> list[Change]:
    """The cheapest changes that make the recipe fit, without needless ones; if none do, all that help."""

    def peak(changes: list[Change]) -> float:
        return memory(changed(config, *changes), shape, gpu, lengths, gpus).peak

    chosen: list[Change] = []
    for change in _proposals(config, gpus):
        if (now := peak(chosen)) <= gpu.bytes:
            break
        chosen += [change] if peak([*chosen, change]) < WORTH * now else []
    for change in list(chosen):
        without = [c for c in chosen if c != change]
        chosen = without if peak(without) <= gpu.bytes else chosen
    return chosen


def _proposals(config: Config, gpus: int) -> list[Change]:
    """The applicable changes, cheapest first."""
    traits = traits_of(config.engine.kind)
    local_vllm = not traits.remote and not traits.in_place
    # Sharding splits weights by rows, which packed 4-bit ones do not have.
    packs = gpus == 1 and config.model.quantize == "none" and config.model.dtype != "float32"
    proposals: list[tuple[bool, str, Any]] = [
        (local_vllm and not config.engine.sleep, "engine.sleep", True),
        (config.train.micro_batch > 1, "train.micro_batch", 1),
        (not config.train.recompute, "train.recompute", True),
        # Wide rows repeat fewer tokens, narrow ones recompute in less memory: it depends on the data.
        (True, "train.row_tokens", 8192),
        (True, "train.row_tokens", 1024),
        (config.rollout.merge, "rollout.merge", False),
        (not traits.remote, "engine.kind", "vllm-http"),
        (gpus > 1 and not config.train.shard, "train.shard", True),
        (packs, "model.quantize", "nf4"),
    ]
    return [(key, value) for possible, key, value in proposals if possible]


def samples_merged(config: Config) -> bool:
    return config.rollout.merge and traits_of(config.engine.kind).in_place


def server_group(config: Config, shape: Shape, gpu: Gpu) -> int:
    """GPUs per server (tensor parallel): as few as hold the weights in 80% of their memory."""
    weights = shape.parameters * WIDTHS[config.model.dtype]
    return ceil(weights / (0.8 * gpu.bytes)) if traits_of(config.engine.kind).remote else 1


def scoring_flops(config: Config, shape: Shape, load: Load) -> float:
    """Operations of both models' passes and of the head, two per weight and token."""
    adapter = shape.adapter(config.lora.r, adapted_projections(config))
    forward = 2 * (shape.linear + adapter)
    backward = 2 * shape.linear + 4 * adapter  # input gradients; for the adapter also weight gradients
    again = forward if config.train.recompute else 0
    student = load.student.tokens * (load.passes * forward + backward + again)
    return student + load.teacher.tokens * load.passes * forward + 2 * load.products * shape.head


def step_seconds(
    config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int = 1, mfu: float = MFU
) -> dict[str, float]:
    """Seconds of one step by part; `load` is that of one process."""
    dtype, traits = config.model.dtype, traits_of(config.engine.kind)
    rate = mfu * 1e12 * (gpu.float32 if dtype == "float32" else gpu.bfloat16)
    # Every pass of a row gathers the sharded weights; sampling with them gathers once.
    gather = weight_bytes(config, shape) * (gpus - 1) / gpus / (gpu.link * 1e9) if config.train.shard else 0.0
    forwards = load.passes * (load.teacher.rows + load.student.rows)
    backwards = load.student.rows * (3 if config.train.recompute else 2)  # a backward launches twice the work
    computing, issuing = (
        scoring_flops(config, shape, load) / rate,
        ISSUED * shape.layers * (forwards + backwards),
    )
    seconds = {
        "sampling": _sampling(config, shape, gpu, load, gpus, rate) + traits.in_place * gather,
        "scoring": max(computing, issuing, gather * (forwards + load.student.rows)),
    }
    if not traits.in_place:
        adapter = shape.adapter(config.lora.r, adapted_projections(config))
        seconds["adapter to the engine"] = adapter * WIDTHS[dtype] / HANDOVER
    return seconds


def _sampling(config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int, rate: float) -> float:
    traits, merged, width = traits_of(config.engine.kind), samples_merged(config), WIDTHS[config.model.dtype]
    adapter = 0 if merged else shape.adapter(config.lora.r, adapted_projections(config))
    # The servers of the recipe sample for all processes; other engines sample for one.
    served = gpus / max(1, len(config.engine.servers)) if traits.remote else 1.0
    group, sampled, linear = server_group(config, shape, gpu), load.sampled, shape.linear + adapter
    prefill = served * 2 * sampled.prefilled * linear / rate / group
    computing = served * 2 * sampled.tokens * (linear + shape.head) / rate / group
    embedding = 0 if shape.tied else shape.head * width  # only looked up
    # In place, the float32 adapter is rounded for every token.
    beside = adapter * (FLOAT + 2 * width if traits.in_place and width != FLOAT else width)
    weights_read = sampled.steps * (weight_bytes(config, shape) - embedding + beside)
    cache_read = served * sampled.read * cache_token_bytes(shape, config.model.dtype)
    reading = (weights_read + cache_read) / (BANDWIDTH * gpu.bandwidth * 1e9) / group
    layers = sampled.steps * shape.layers
    captured = traits.in_place and gpu.is_gpu and not (gpus > 1 and config.train.shard)
    if captured:  # small launches and matmuls do not overlap
        return prefill + max(computing, reading) + layers * (REPLAYED_MERGED if merged else REPLAYED)
    issued = VLLM if traits.graphs else ISSUED_MERGED if merged else ISSUED
    return prefill + max(computing, reading, layers * issued)

"""From operations and bytes to seconds. Every assumption has a name here; none was measured on a GPU. Left
out: verifiers, files, padding, compilation, processes that wait for the slowest one, elementwise kernels.
"""

from dataclasses import dataclass
from math import ceil

from smopd.config import Config
from smopd.planning.flops import Flops, samples_merged, step_flops
from smopd.planning.gpus import Gpu
from smopd.planning.load import Load
from smopd.planning.memory import FLOAT, WIDTHS, cache_token_bytes, weight_bytes
from smopd.planning.shapes import Shape, adapted_projections
from smopd.rollout.engine import traits_of

MFU = 0.35  # share of the published rate that matrix products of a few thousand tokens reach
BANDWIDTH = 0.8  # share of the published bandwidth
# Seconds that torch needs to issue one decoder layer's work, whatever its size: with an adapter beside every
# projection, with the adapter merged (tools/issue_time.py measures both), replayed from a CUDA graph.
ISSUE, ISSUE_MERGED, ISSUE_GRAPH = 1.5e-3, 1.1e-3, 1.0e-4


@dataclass(frozen=True)
class Times:
    """Seconds of one step by part, and what bounds each of them."""

    seconds: dict[str, float]
    bound: dict[str, str]
    flops: dict[str, Flops]  # operations behind them

    @property
    def total_flops(self) -> float:
        """Operations of the step."""
        return sum(flops.total for flops in self.flops.values())

    @property
    def step(self) -> float:
        """All parts, one after the other."""
        return sum(self.seconds.values())


def server_group(config: Config, shape: Shape, gpu: Gpu) -> int:
    """GPUs of one server (tensor parallel): as few as hold the weights in 80% of their memory."""
    weights = shape.parameters * WIDTHS[config.model.dtype]
    return ceil(weights / (0.8 * gpu.memory * 1e9)) if traits_of(config.engine.kind).remote else 1


def step_times(config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int = 1, mfu: float = MFU) -> Times:
    """Seconds of one step; `load` is one process's."""
    work = step_flops(config, shape, load)
    traits, merged = traits_of(config.engine.kind), samples_merged(config)
    whole = weight_bytes(config, shape)
    sharded = gpus > 1 and config.train.shard
    gather = whole * (gpus - 1) / gpus / (gpu.link * 1e9) if sharded else 0.0
    adapter = shape.adapter(config.lora.r, adapted_projections(config)) * FLOAT
    bandwidth = BANDWIDTH * gpu.bandwidth * 1e9

    def computing(flops: Flops) -> float:
        return (flops.base / gpu.rate(config.model.dtype) + flops.adapter / gpu.rate("float32")) / mfu

    seconds: dict[str, float] = {}
    bound: dict[str, str] = {}

    def add(name: str, **reasons: float) -> None:
        why = max(reasons, key=lambda reason: reasons[reason])
        seconds[name], bound[name] = reasons[why], why

    # Servers sample for all processes, and are as many as the recipe names; other engines sample for one.
    served = gpus / max(1, len(config.engine.servers)) if traits.remote else 1.0
    group = server_group(config, shape, gpu)
    issue = (ISSUE_GRAPH if traits.graphs else ISSUE_MERGED if merged else ISSUE) * shape.layers
    embedding = 0 if shape.tied else shape.head * WIDTHS[config.model.dtype]  # only looked up
    weights_read = load.sampled.steps * (whole - embedding + (0 if merged else adapter))
    cache_read = load.sampled.read * cache_token_bytes(shape, config.model.dtype)
    reading = (weights_read + served * cache_read) / bandwidth / group
    prefill, decode = (computing(work[f"rollout {part}"]) * served / group for part in ("prefill", "decode"))
    add("rollout prefill", computing=prefill, issuing=issue * load.sampled.calls)
    add("rollout decode", bandwidth=reading, computing=decode, issuing=issue * load.sampled.steps)
    if sharded and traits.in_place:
        seconds["rollout decode"] += gather  # whole weights for as long as it samples
    # A backward pass issues about twice the work; checkpointing puts a forward pass in front of it.
    often = {
        "teacher forward": load.passes,
        "student forward": load.passes,
        "student backward": 3 if config.train.recompute else 2,
    }
    for name, times in often.items():
        rows = load.teacher.rows if name == "teacher forward" else load.student.rows
        issuing = times * ISSUE * shape.layers * rows
        add(name, computing=computing(work[name]), issuing=issuing, gathering=gather * rows)
    add("head", computing=computing(work["head"]))
    exchanged = 2 * adapter / (gpu.link * 1e9) if gpus > 1 else 0.0
    add("update", bandwidth=10 * adapter / bandwidth, gathering=exchanged)
    return Times(seconds, bound, work)

"""From operations, bytes and launches, which are counted, to seconds, which are estimated. Every assumption
has a name here; none was measured on a GPU. Left out: verifiers, files, compilation and capture, processes
that wait for the slowest one, elementwise kernels of the passes.
"""

from dataclasses import dataclass
from math import ceil

from smopd.config import Config, plan_of
from smopd.planning.device import CHUNK_LAUNCHES, chunk_rows, decode_launches, is_gpu
from smopd.planning.engines import engine_on, engine_traits
from smopd.planning.flops import Flops, samples_merged, step_flops
from smopd.planning.gpus import Gpu
from smopd.planning.load import Load
from smopd.planning.memory import FLOAT, WIDTHS, cache_token_bytes, weight_bytes
from smopd.planning.shapes import Shape, adapted_projections

MFU = 0.35  # share of the published rate that matrix products of a few thousand tokens reach
BANDWIDTH = 0.8  # share of the published bandwidth
# Seconds that torch needs to issue one decoder layer's work, whatever its size: with an adapter beside every
# projection, with the adapter merged (tools/issue_time.py measures both), in vLLM's CUDA graphs.
ISSUE, ISSUE_MERGED, ISSUE_GRAPH = 1.5e-3, 1.1e-3, 1.0e-4
LAUNCH, REPLAY = (
    1.0e-5,
    2.5e-6,
)  # seconds of one small launch from Python, and of one in a replayed CUDA graph
# Times that a row of the head's float32 logits goes to or from memory: both are written, read for the
# statistics and for the gradient, which is written and read.
HEAD_TRAFFIC = 8
HANDOVER = 1.0e9  # bytes a second from the student's adapter to vLLM's copy of it


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
    return ceil(weights / (0.8 * gpu.memory * 1e9)) if engine_traits(config).remote else 1


def step_times(config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int = 1, mfu: float = MFU) -> Times:
    """Seconds of one step; `load` is one process's."""
    config = engine_on(config, gpu, gpus)
    work = step_flops(config, shape, load)
    traits, merged = engine_traits(config), samples_merged(config)
    whole = weight_bytes(config, shape)
    sharded = gpus > 1 and config.train.shard
    gather = whole * (gpus - 1) / gpus / (gpu.link * 1e9) if sharded else 0.0
    adapter = shape.adapter(config.lora.r, adapted_projections(config)) * FLOAT
    bandwidth = BANDWIDTH * gpu.bandwidth * 1e9

    def computing(flops: Flops) -> float:
        return flops.total / gpu.rate(config.model.dtype) / mfu

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
    width = WIDTHS[config.model.dtype]
    handed = adapter / FLOAT * width  # the adapter in the base's precision
    beside = 0.0 if merged else handed
    if traits.in_place and not merged and width != FLOAT:
        beside = adapter + 2 * handed  # the float32 one is rounded for every token
    weights_read = load.sampled.steps * (whole - embedding + beside)
    cache_read = load.sampled.read * cache_token_bytes(shape, config.model.dtype)
    reading = (weights_read + served * cache_read) / bandwidth / group
    prefill, decode = (computing(work[f"rollout {part}"]) * served / group for part in ("prefill", "decode"))
    add("rollout prefill", computing=prefill, issuing=issue * load.sampled.calls)
    if traits.in_place and is_gpu(gpu) and not sharded:  # sharded layers cannot be captured
        # Replayed from a CUDA graph. Small launches and the products that read the weights take turns.
        replaying = REPLAY * decode_launches(shape, config.model.dtype, merged) * load.sampled.steps
        add("rollout decode", computing=decode + replaying, **{"launches, bandwidth": reading + replaying})
    else:
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
    moved = HEAD_TRAFFIC * load.scored * shape.vocabulary * FLOAT
    chunks = head_chunks(config, shape, load) if is_gpu(gpu) else 0
    launching = CHUNK_LAUNCHES * chunks * LAUNCH
    add("head", computing=computing(work["head"]), bandwidth=moved / bandwidth, issuing=launching)
    if not traits.in_place:
        add("adapter to the engine", copying=handed / HANDOVER)
    exchanged = 2 * adapter / (gpu.link * 1e9) if gpus > 1 else 0.0
    add("update", bandwidth=10 * adapter / bandwidth, gathering=exchanged)
    return Times(seconds, bound, work)


def head_chunks(config: Config, shape: Shape, load: Load) -> float:
    """Chunks of the head in a step: every micro-batch makes its own, at least one for each kind of loss."""
    parts = ceil(load.rollouts / config.train.micro_batch)
    losses = len({term.loss for term in plan_of(config).scored})
    rows = load.scored / parts / losses
    return parts * losses * ceil(rows / chunk_rows(shape, float("inf")))

"""From operations and bytes to seconds. Every assumption stands here with a name; none of them was measured
on a GPU.

Prefill and scoring are bound by computing, at a share of the GPU's rate (`MFU`, --mfu), or by how fast Python
issues the work of a layer; sampling is bound by reading the weights and the cache once a token, or by the
same issuing. Left out: verifiers, files, padding, the first compilation, processes that wait for the slowest
one, and elementwise kernels.
"""

from dataclasses import dataclass
from math import ceil

from smopd.config import Config
from smopd.planning.flops import Flops, step_flops
from smopd.planning.gpus import Gpu
from smopd.planning.load import Load
from smopd.planning.memory import FLOAT, WIDTHS, cache_token_bytes, weight_bytes
from smopd.planning.shapes import Shape

MFU = 0.35  # share of the published rate that matrix products of a few thousand tokens reach
BANDWIDTH = 0.8  # share of the published bandwidth
# Seconds that Python and torch need to issue one decoder layer's work, whatever its size: with an adapter
# beside every projection, with the adapter merged (`python -m smopd.planning.issue` measures both), and
# replayed from a CUDA graph by vLLM.
ISSUE, ISSUE_MERGED, ISSUE_GRAPH = 1.5e-3, 1.1e-3, 1.0e-4


@dataclass(frozen=True)
class Times:
    """Seconds of one step by part, and what bounds each of them."""

    seconds: dict[str, float]
    bound: dict[str, str]

    @property
    def step(self) -> float:
        """All parts, one after the other."""
        return sum(self.seconds.values())


def server_group(config: Config, shape: Shape, gpu: Gpu) -> int:
    """GPUs of one vLLM server: as few as hold the weights with a fifth of their memory to spare (tensor
    parallel).
    """
    weights = shape.parameters * WIDTHS[config.model.dtype]
    return ceil(weights / (0.8 * gpu.memory * 1e9)) if config.engine.kind == "vllm-http" else 1


def step_times(config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int = 1, mfu: float = MFU) -> Times:
    """Of one step; `load` is one process's."""
    work = step_flops(config, shape, load)
    sharded = gpus > 1 and getattr(config.train, "shard", False)
    whole = weight_bytes(config, shape)
    gather = whole * (gpus - 1) / gpus / (gpu.link * 1e9) if sharded else 0.0
    adapter = shape.adapter(config.lora.r, tuple(config.lora.targets)) * FLOAT
    bandwidth = BANDWIDTH * gpu.bandwidth * 1e9

    def computing(flops: Flops) -> float:
        return (flops.base / gpu.rate(config.model.dtype) + flops.adapter / gpu.rate("float32")) / mfu

    seconds: dict[str, float] = {}
    bound: dict[str, str] = {}

    def add(name: str, **reasons: float) -> None:
        why = max(reasons, key=lambda reason: reasons[reason])
        seconds[name], bound[name] = reasons[why], why

    # Servers sample for all processes, and are as many as the recipe names; other engines sample for their
    # own.
    served = gpus / max(1, len(config.engine.servers)) if config.engine.kind == "vllm-http" else 1.0
    group = server_group(config, shape, gpu)
    merged = config.rollout.merge and config.engine.kind == "hf"
    issue = (ISSUE_MERGED if merged else ISSUE if config.engine.kind == "hf" else ISSUE_GRAPH) * shape.layers
    read = whole - (0 if shape.tied else shape.head * WIDTHS[config.model.dtype]) + (0 if merged else adapter)
    of_token = cache_token_bytes(shape, config.model.dtype)
    add(
        "rollout prefill",
        computing=computing(work["rollout prefill"]) * served / group,
        issuing=issue * len(load.calls),
    )
    steps = sum(call.steps for call in load.calls)
    add(
        "rollout decode",
        bandwidth=(steps * read + served * sum(call.read for call in load.calls) * of_token)
        / bandwidth
        / group,
        computing=computing(work["rollout decode"]) * served / group,
        issuing=issue * steps,
    )
    if sharded and config.engine.kind == "hf":
        seconds["rollout decode"] += gather  # whole weights for as long as it samples
    layer = ISSUE * shape.layers
    passes = {
        "teacher forward": load.teacher.rows,
        "student forward": load.student.rows,
        "student backward": load.student.rows,
    }
    for name, rows in passes.items():
        # A backward pass issues about twice the work; checkpointing puts a forward pass in front of it.
        often = (3 if config.train.recompute else 2) if name == "student backward" else 1
        add(name, computing=computing(work[name]), issuing=often * layer * rows, gathering=gather * rows)
    add("head", computing=computing(work["head"]))
    add(
        "update",
        bandwidth=10 * adapter / bandwidth,
        gathering=2 * adapter / (gpu.link * 1e9) if gpus > 1 else 0.0,
    )
    return Times(seconds, bound)

"""Seconds of a step, roughly: from tokens and bytes, which are counted, and published rates. Every assumption
has a name here; none was measured on a GPU. Left out: attention's own products, the update, verifiers, files,
compilation and capture, processes that wait for the slowest one.
"""

from math import ceil

from smopd.config import Config
from smopd.planning.gpus import Gpu, engine_on
from smopd.planning.load import Load, engine_traits
from smopd.planning.memory import FLOAT, WIDTHS, cache_token_bytes, weight_bytes
from smopd.planning.shapes import Shape, adapted_projections

MFU = 0.35  # share of the published rate that matrix products of a few thousand tokens reach
BANDWIDTH = 0.8  # share of the published bandwidth
# Seconds of one decoder layer and sampled token, whatever its size. Issued by torch, with an adapter beside
# every projection or merged (tools/issue_time.py measures both); the same launches replayed from a CUDA
# graph; in vLLM's CUDA graphs.
ISSUED, ISSUED_MERGED = 1.5e-3, 1.1e-3
REPLAYED, REPLAYED_MERGED = 2.5e-4, 1.5e-4
VLLM = 1.0e-4
HANDOVER = 1.0e9  # bytes a second from the student's adapter to vLLM's copy of it


def samples_merged(config: Config) -> bool:
    """Whether rollouts are sampled with the adapter merged into the weights."""
    return config.rollout.merge and engine_traits(config).in_place


def server_group(config: Config, shape: Shape, gpu: Gpu) -> int:
    """GPUs of one server (tensor parallel): as few as hold the weights in 80% of their memory."""
    weights = shape.parameters * WIDTHS[config.model.dtype]
    return ceil(weights / (0.8 * gpu.memory * 1e9)) if engine_traits(config).remote else 1


def scoring_flops(config: Config, shape: Shape, load: Load) -> float:
    """Matrix products of both models' passes and of the head, two operations a weight and token."""
    linear, adapter = shape.layer * shape.layers, shape.adapter(config.lora.r, adapted_projections(config))
    forward = 2 * (linear + adapter)
    backward = 2 * linear + 4 * adapter  # by inputs for the frozen base, by weights too for the adapter
    again = forward if config.train.recompute else 0
    student = load.student.tokens * (load.passes * forward + backward + again)
    return student + load.teacher.tokens * load.passes * forward + 2 * load.products * shape.head


def step_seconds(
    config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int = 1, mfu: float = MFU
) -> dict[str, float]:
    """Seconds of one step by part, one after the other; `load` is one process's."""
    config = engine_on(config, gpu, gpus)
    traits, sharded = engine_traits(config), gpus > 1 and config.train.shard
    whole, adapter = weight_bytes(config, shape), shape.adapter(config.lora.r, adapted_projections(config))
    # Every pass of a row gathers the sharded weights; sampling with them gathers once.
    gather = whole * (gpus - 1) / gpus / (gpu.link * 1e9) if sharded else 0.0
    forwards = load.passes * (load.teacher.rows + load.student.rows)
    backwards = load.student.rows * (3 if config.train.recompute else 2)  # a backward issues twice the work
    seconds = {
        "sampling": _sampling(config, shape, gpu, load, gpus, mfu, sharded) + traits.in_place * gather,
        "scoring": max(
            scoring_flops(config, shape, load) / gpu.rate(config.model.dtype) / mfu,
            ISSUED * shape.layers * (forwards + backwards),
            gather * (forwards + load.student.rows),
        ),
    }
    if not traits.in_place:
        seconds["adapter to the engine"] = adapter * WIDTHS[config.model.dtype] / HANDOVER
    return seconds


def _sampling(
    config: Config, shape: Shape, gpu: Gpu, load: Load, gpus: int, mfu: float, sharded: bool
) -> float:
    traits, merged, width = engine_traits(config), samples_merged(config), WIDTHS[config.model.dtype]
    adapter = 0 if merged else shape.adapter(config.lora.r, adapted_projections(config))
    # Servers sample for all processes, and are as many as the recipe names; other engines sample for one.
    served = gpus / max(1, len(config.engine.servers)) if traits.remote else 1.0
    group, sampled = server_group(config, shape, gpu), load.sampled
    linear, rate = shape.layer * shape.layers + adapter, mfu * gpu.rate(config.model.dtype) * group
    prefill = served * 2 * sampled.prefilled * linear / rate
    computing = served * 2 * sampled.tokens * (linear + shape.head) / rate
    embedding = 0 if shape.tied else shape.head * width  # only looked up
    beside = adapter * width
    if traits.in_place and width != FLOAT:
        beside = adapter * (FLOAT + 2 * width)  # the float32 one is rounded for every token
    weights_read = sampled.steps * (weight_bytes(config, shape) - embedding + beside)
    cache_read = served * sampled.read * cache_token_bytes(shape, config.model.dtype)
    reading = (weights_read + cache_read) / (BANDWIDTH * gpu.bandwidth * 1e9) / group
    layers = sampled.steps * shape.layers
    if traits.in_place and gpu.is_gpu and not sharded:  # sharded layers cannot be captured
        # Small launches and the products that read the weights take turns.
        return prefill + max(computing, reading) + layers * (REPLAYED_MERGED if merged else REPLAYED)
    issued = VLLM if traits.graphs else ISSUED_MERGED if merged else ISSUED
    return prefill + max(computing, reading, layers * issued)

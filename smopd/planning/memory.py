"""Memory by part, from shapes and settings alone. The formula for the student's activations was read off
saved tensors, and a test checks it. All packed tokens of a micro-batch count.
"""

from dataclasses import dataclass
from math import ceil

from smopd.config import Config
from smopd.errors import UserError
from smopd.planning.load import Averages, Packed, find_averages, largest_load
from smopd.planning.shapes import GPUS, PROJECTIONS, Gpu, Names, Shape, adapted_projections, find_shape
from smopd.rollout.batches import GROWTH, static_shape
from smopd.rollout.engine import traits_of
from smopd.scoring.chunks import CHUNK_BYTES, device_rows

FLOAT = 4
# Assumptions: bytes of the CUDA context and libraries; share of the GPU for temporaries and fragments.
CONTEXT, RESERVE = 1.0e9, 0.05
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
# Bytes per weight of a quantized layer: nf4 with double quantization (4.127 bits), int8.
QUANTIZED = {"nf4": 4.127 / 8, "int8": 1.0}
# Projections that read the same input.
READERS = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU. Rollouts and scoring alternate: each frees its memory for the other."""

    parts: dict[str, float]
    rollout: float
    scoring: float

    @property
    def peak(self) -> float:
        return max(self.rollout, self.scoring)

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])


def weight_bytes(config: Config, shape: Shape) -> float:
    width = WIDTHS[config.model.dtype]
    inner = QUANTIZED.get(config.model.quantize, width)
    return shape.linear * inner + (shape.parameters - shape.linear) * width


def kept_bytes(shape: Shape, rank: int, dtype: str, packed: Packed, targets: Names = PROJECTIONS) -> float:
    """Bytes the student's forward saves without recomputation; for flex_attention an untested estimate."""
    width, d, q, k = WIDTHS[dtype], shape.hidden, shape.queries, shape.keys
    sizes = {name: shape.projections[name] for name in targets}
    # Projections with the same input save it once.
    copies = sum(max(sizes.get(name, (0, 0))[0] for name in group) for group in READERS)
    norms = 2 * d + (q + k if shape.normed else 0)
    token = FLOAT * (norms + shape.heads)
    token += width * (copies + len(sizes) * rank + 3 * shape.intermediate + 2 * q)
    # Attention saves keys and values along every path, and a mask value per pair and head of a group.
    attention = width * (2 * k * packed.paths + shape.heads // shape.kv_heads * packed.pairs)
    # Every pass rounds the float32 adapters again.
    rounded = 0 if width == FLOAT else packed.rows * width * rank * sum(map(sum, sizes.values()))
    return shape.layers * (packed.tokens * token + attention + rounded) + packed.tokens * d * FLOAT


def recomputed_bytes(shape: Shape, dtype: str, student: Packed) -> float:
    """What gradient checkpointing saves: every layer's input, and the last norm's in float32."""
    return student.tokens * shape.hidden * (shape.layers * WIDTHS[dtype] + FLOAT)


def head_bytes(config: Config, shape: Shape, replies: float, free: float | None = None) -> float:
    """A chunk's two float32 buffers and four [N, d] matrices; with `free` GPU bytes also gradient buffers."""
    width = WIDTHS[config.model.dtype]
    matrices = replies * shape.hidden * (2 * width + 2 * FLOAT)  # hidden states, gradients
    if free is not None:
        rows = min(replies, device_rows(free, 3 * shape.vocabulary * FLOAT))
        return rows * shape.vocabulary * (3 * FLOAT + (0 if width == FLOAT else width)) + matrices
    rows = min(replies, max(1, CHUNK_BYTES // (2 * shape.vocabulary * FLOAT)))
    return rows * shape.vocabulary * 2 * FLOAT + matrices


def cache_token_bytes(shape: Shape, dtype: str) -> int:
    return 2 * shape.layers * shape.keys * WIDTHS[dtype]


def cache_bytes(config: Config, shape: Shape, lengths: Averages, processes: int, static: bool) -> float:
    """The hf engine's cache at the last turn of its longest conversations: in the batch and waiting."""
    conversations = min(config.rollout.batch, ceil(config.train.rollouts / processes))
    context, limit = largest_context(config, lengths), config.rollout.answer_tokens
    token = cache_token_bytes(shape, config.model.dtype)
    room = limit if limit <= GROWTH else ceil(limit / GROWTH) * GROWTH  # how a buffer grows
    grown = conversations, context + room
    rows, columns = static_shape(conversations, ceil(context + limit)) if static else grown
    if not config.engine.cache_mb:
        return rows * columns * token
    half = config.engine.cache_mb * 2**20 / 2
    # At least one conversation is sampled at a time.
    batch = max(min(rows * columns * token, half), columns * token)
    return batch + min(conversations * context * token, half)


def server_bytes(config: Config, shape: Shape, lengths: Averages) -> float:
    """The minimum for vLLM: weights, an adapter, the longest conversation's cache, 2 GB for itself."""
    weights = shape.parameters + shape.adapter(config.lora.r, adapted_projections(config))
    context = largest_context(config, lengths) + config.rollout.answer_tokens
    cache = context * cache_token_bytes(shape, config.model.dtype)
    return weights * WIDTHS[config.model.dtype] + cache + 2e9


def largest_context(config: Config, lengths: Averages) -> float:
    """Tokens before the last answer of the longest conversation, with every reply at its limit."""
    turns = max(lengths.turns)
    turn = lengths.user + lengths.shard + lengths.prompt - lengths.lost + lengths.close
    return lengths.start + lengths.system + turns * turn + (turns - 1) * config.rollout.middle_tokens


def memory(config: Config, shape: Shape, gpu: Gpu, lengths: Averages, gpus: int = 1) -> Memory:
    sharded, traits = gpus > 1 and config.train.shard, traits_of(config.engine.kind)
    dtype, targets = config.model.dtype, adapted_projections(config)
    adapter = shape.adapter(config.lora.r, targets) * FLOAT
    base = whole = weight_bytes(config, shape)
    if sharded:  # one layer is gathered at a time; embeddings and head are gathered beside it
        ends = shape.head * WIDTHS[dtype]
        base = min(whole, whole / gpus + (whole - ends) / shape.layers + ends)
    # The gradient, the micro-batch's gradient, and the optimizer's two moments.
    adapters = {"adapters, student and teacher": 2 * adapter, "gradients and optimizer": 4 * adapter}
    weights = {"base weights": base, **adapters}
    reserve = CONTEXT + RESERVE * gpu.bytes if gpu.is_gpu else 0.5e9
    sampling = {}
    if traits.in_place:
        static = gpu.is_gpu and not sharded
        sampling["rollout cache"] = cache_bytes(config, shape, lengths, gpus, static)
        if config.rollout.merge:
            sampling["adapted weights, second copy"] = shape.linear * WIDTHS[dtype]
        if sharded:  # it samples with whole weights
            sampling["whole weights while sampling"] = whole - base
    elif not traits.remote:
        sampling["engine (vLLM's share)"] = config.engine.memory * gpu.bytes
    always = sum(weights.values()) + reserve
    awake = 0.0 if traits.in_place or config.engine.sleep else sum(sampling.values())
    largest = largest_load(config, lengths, gpu.is_gpu)
    student = largest.student
    activations = kept_bytes(shape, config.lora.r, dtype, student, targets)
    if config.train.recompute and student.tokens:  # one layer of one row is recomputed at a time
        share = student.longest / student.tokens / shape.layers
        activations = recomputed_bytes(shape, dtype, student) + share * activations
    free = gpu.bytes - always - awake - activations if gpu.is_gpu else None
    head = head_bytes(config, shape, largest.gradients, free)
    scoring = {"activations, student pass": activations, "head": head}
    parts = weights | scoring | {"framework reserve": reserve} | sampling
    return Memory(parts, always + sum(sampling.values()), always + sum(scoring.values()) + awake)


def memory_comment(config: Config) -> str:
    try:
        parts = memory(config, find_shape(config)[0], GPUS["cpu"], find_averages(config)).parts
    except UserError as error:
        return f"# memory: not known ({str(error).splitlines()[0]})\n"
    weights, adapters, optimizer, activations, head, *_ = (size / 1e6 for size in parts.values())
    sizes = f"weights {weights:,.0f}; adapters and optimizer {adapters + optimizer:,.0f}"
    sizes += f"; activations of the longest micro-batch {activations:,.0f}; head {head:,.0f}"
    return f"# memory, MB: {sizes} (smopd plan tells more)\n"

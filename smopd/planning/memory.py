"""Memory by part, from shapes and settings alone.

What the student's pass keeps was read off the saved tensors of Qwen3 and Llama bodies in float32 and
bfloat16, and a test reads it off again. A micro-batch is differentiated when all of its rows have been
through the model, so all of its packed tokens count; `train.row_tokens` bounds only what one row needs for
itself. Left out: temporaries of single operations and what the allocator cannot use; `RESERVE` stands for
both.
"""

from dataclasses import dataclass

from smopd.config import Config
from smopd.errors import UserError
from smopd.planning.averages import Averages, find_averages
from smopd.planning.gpus import Gpu
from smopd.planning.load import Packed, largest_load
from smopd.planning.shapes import PROJECTIONS, Shape, find_shape
from smopd.rollout.kv import GROWTH
from smopd.scoring.divergence import CHUNK_BYTES

FLOAT = 4
CONTEXT, RESERVE = (
    1.0e9,
    0.05,
)  # assumption: bytes of the CUDA context and libraries; share of the GPU that cannot be used
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
# Bytes a weight of a quantized layer: nf4 with its scales quantized again (4.127 bits), int8 with one float16
# scale a row.
QUANTIZED = {"nf4": 4.127 / 8, "int8": 1.0}
READERS = (
    ("q_proj", "k_proj", "v_proj"),
    ("o_proj",),
    ("gate_proj", "up_proj"),
    ("down_proj",),
)  # of the same input


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU. Rollouts and scoring take turns: what one of them needs alone is there for the other."""

    parts: dict[str, float]
    rollout: float
    scoring: float

    @property
    def peak(self) -> float:
        """The larger of the two."""
        return max(self.rollout, self.scoring)


def weight_bytes(config: Config, shape: Shape) -> float:
    """The base."""
    width = WIDTHS[config.model.dtype]
    inner = QUANTIZED.get(getattr(config.model, "quantize", "none"), width)
    linear = shape.layer * shape.layers
    return linear * inner + (shape.parameters - linear) * width


def kept_bytes(
    shape: Shape, rank: int, dtype: str, packed: Packed, targets: tuple[str, ...] = PROJECTIONS
) -> float:
    """What the student's forward pass keeps for backward, without recomputation."""
    width, d, q, k = WIDTHS[dtype], shape.hidden, shape.queries, shape.keys
    inputs = {name: into for name, (into, _) in shape.projections().items() if name in targets}
    if width == FLOAT:  # projections that read the same numbers share them
        copies = sum(
            next(inputs[name] for name in group if name in inputs)
            for group in READERS
            if inputs.keys() & set(group)
        )
    else:  # every adapter turns its input into float32 for itself
        copies = sum(inputs.values())
    norms = 2 * d + (q + k if shape.normed else 0)
    token = FLOAT * (copies + len(inputs) * rank + norms + shape.heads) + width * (
        3 * shape.intermediate + 2 * q
    )
    # Attention keeps the keys and values along every path, and its mask as numbers, one for every pair of a
    # group's queries.
    attention = width * (2 * k * packed.paths + shape.heads // shape.kv_heads * packed.pairs)
    return shape.layers * (packed.tokens * token + attention) + packed.tokens * d * FLOAT


def activation_bytes(config: Config, shape: Shape, student: Packed) -> float:
    """The most that is alive for the student's backward pass."""
    targets = PROJECTIONS if "all-linear" in config.lora.targets else tuple(config.lora.targets)
    whole = kept_bytes(shape, config.lora.r, config.model.dtype, student, targets)
    if not config.train.recompute:
        return whole
    # One input a layer, and one layer of one row while it is computed again.
    share = student.longest / student.tokens / shape.layers if student.tokens else 0
    return recomputed_bytes(shape, config.model.dtype, student) + share * whole


def recomputed_bytes(shape: Shape, dtype: str, student: Packed) -> float:
    """What is kept with gradient checkpointing: every layer's input, and the last norm's in float32."""
    return student.tokens * shape.hidden * (shape.layers * WIDTHS[dtype] + FLOAT)


def head_bytes(config: Config, shape: Shape, replies: int) -> float:
    """A chunk's two float32 buffers and their copies in the base's precision, and four [N, d] matrices."""
    width = WIDTHS[config.model.dtype]
    rows = min(replies, max(1, CHUNK_BYTES // (2 * shape.vocabulary * FLOAT)))
    copies = 0 if width == FLOAT else width
    return rows * shape.vocabulary * (2 * FLOAT + copies) + 4 * replies * shape.hidden * width


def cache_token_bytes(shape: Shape, dtype: str) -> int:
    """Keys and values of one token in all layers."""
    return 2 * shape.layers * shape.keys * WIDTHS[dtype]


def cache_bytes(config: Config, shape: Shape, lengths: Averages, processes: int) -> float:
    """Of the hf engine at the last turn of its longest conversations: the batch being sampled, and what waits
    between turns.
    """
    conversations = min(config.rollout.batch, -(-config.train.rollouts // processes))
    context = largest_context(config, lengths)
    of_token = cache_token_bytes(shape, config.model.dtype)
    limit = config.rollout.answer_tokens
    room = (
        limit if limit <= GROWTH else -(-limit // GROWTH) * GROWTH
    )  # a buffer grows by so many columns at a time
    batch = conversations * (context + room) * of_token
    if not config.engine.cache_mb:
        return batch
    half = config.engine.cache_mb * 2**20 / 2
    alone = batch / conversations  # one conversation is sampled whatever it takes
    return max(min(batch, half), alone) + min(conversations * context * of_token, half)


def server_bytes(config: Config, shape: Shape, lengths: Averages) -> float:
    """The least that vLLM needs: weights, an adapter, the cache of one longest conversation, two gigabytes
    for itself.
    """
    adapter = shape.adapter(config.lora.r, tuple(config.lora.targets))
    context = largest_context(config, lengths) + config.rollout.answer_tokens
    width = WIDTHS[config.model.dtype]
    return (shape.parameters + adapter) * width + context * cache_token_bytes(shape, config.model.dtype) + 2e9


def largest_context(config: Config, lengths: Averages) -> float:
    """Tokens in front of the last answer of the longest conversation, every reply at its limit."""
    form, turns = lengths.template, max(lengths.turns)
    turn = form.user + lengths.shard + form.prompt - form.lost + form.close
    return form.start + lengths.system + turns * turn + (turns - 1) * config.rollout.middle_tokens


def memory(config: Config, shape: Shape, gpu: Gpu, lengths: Averages, gpus: int = 1) -> Memory:
    """By part, on one of `gpus`."""
    sharded = gpus > 1 and getattr(config.train, "shard", False)
    width, whole = WIDTHS[config.model.dtype], weight_bytes(config, shape)
    targets = PROJECTIONS if "all-linear" in config.lora.targets else tuple(config.lora.targets)
    adapter = shape.adapter(config.lora.r, targets) * FLOAT
    student, _, replies = largest_load(config, lengths)
    # One layer is gathered at a time; embeddings and head are gathered beside it.
    weights = (
        whole / gpus + (whole - shape.head * width) / shape.layers + shape.head * width if sharded else whole
    )
    parts = {
        "base weights": min(whole, weights),
        "adapters, student and teacher": 2 * adapter,
        "gradients and optimizer": 4
        * adapter,  # the gradient, the micro-batch's that is added to it, two moments
        "activations, student pass": activation_bytes(config, shape, student),
        "head": head_bytes(config, shape, replies),
        "framework reserve": 0.5e9 if gpu.name == "cpu" else CONTEXT + RESERVE * gpu.memory * 1e9,
    }
    kind = config.engine.kind
    sampling = 0.0
    if kind == "hf":
        parts["rollout cache"] = cache_bytes(config, shape, lengths, gpus)
        sampling = parts["rollout cache"]
        if config.rollout.merge:
            parts["adapted weights, second copy"] = shape.layer * shape.layers * width
            sampling += parts["adapted weights, second copy"]
        if sharded:  # the hf engine samples with whole weights
            parts["whole weights while sampling"] = whole - parts["base weights"]
            sampling += parts["whole weights while sampling"]
    elif kind == "vllm":
        parts["engine (vLLM's share)"] = config.engine.memory * gpu.memory * 1e9
    always = sum(parts[name] for name in ("base weights", "adapters, student and teacher", "gradients and optimizer",
                                          "framework reserve"))  # fmt: skip
    engine = parts.get("engine (vLLM's share)", 0.0)
    scoring = (
        always + parts["activations, student pass"] + parts["head"] + (0.0 if config.engine.sleep else engine)
    )
    return Memory(parts, always + sampling + engine, scoring)


def memory_comment(config: Config) -> str:
    """The estimate as a TOML comment, for --dry-run."""
    try:
        shape, _ = find_shape(config)
        lengths = find_averages(config)
    except UserError as error:
        return f"# memory: not known ({str(error).splitlines()[0]})\n"
    student, _, replies = largest_load(config, lengths)
    targets = PROJECTIONS if "all-linear" in config.lora.targets else tuple(config.lora.targets)
    parts = {
        "weights": weight_bytes(config, shape),
        "adapters and optimizer": 6 * FLOAT * shape.adapter(config.lora.r, targets),
        "activations of the longest micro-batch": activation_bytes(config, shape, student),
        "head": head_bytes(config, shape, replies),
    }
    told = "; ".join(f"{name} {size / 1e6:,.0f}" for name, size in parts.items())
    return f"# memory, MB: {told} (smopd plan tells more)\n"

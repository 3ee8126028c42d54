"""Operations of a step, part by part: two for every weight and token of a matrix product, as torch's
FlopCounterMode counts.

Base and adapters are kept apart, because the adapters' products run in float32. Elementwise work, norms and
the sampler are left out: they cost bandwidth, not operations.
"""

from dataclasses import dataclass

from smopd.config import Config
from smopd.planning.load import Load, Packed
from smopd.planning.shapes import PROJECTIONS, Shape


@dataclass(frozen=True)
class Flops:
    """Operations in the base's precision, and those of the adapters in float32."""

    base: float = 0.0
    adapter: float = 0.0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.base + other.base, self.adapter + other.adapter)

    @property
    def total(self) -> float:
        """Both."""
        return self.base + self.adapter


def attention(shape: Shape, pairs: float) -> float:
    """Scores and their product with the values, in all layers, for so many query-key pairs."""
    return 4 * pairs * shape.queries * shape.layers


def forward(shape: Shape, adapter: int, tokens: float, pairs: float) -> Flops:
    """The body without its head."""
    return Flops(2 * tokens * shape.layer * shape.layers + attention(shape, pairs), 2 * tokens * adapter)


def backward(
    shape: Shape, adapter: int, tokens: float, pairs: float, targets: tuple[str, ...] = PROJECTIONS
) -> Flops:
    """The student's: gradients by inputs for the frozen base, by inputs and by weights for the adapter.

    The first layer's queries, keys and values read the frozen embeddings: nobody wants the gradient by those.
    """
    first = ("q_proj", "k_proj", "v_proj")
    unwanted = sum(a * b for name, (a, b) in shape.projections().items() if name in first)
    per_rank = {name: (a, a + b) for name, (a, b) in shape.projections().items() if name in targets}
    rank = adapter / shape.layers / sum(both for _, both in per_rank.values()) if per_rank else 0
    spared = rank * sum(into for name, (into, _) in per_rank.items() if name in first)
    # Attention computes its scores again rather than keep them: five products for the forward pass's two.
    return Flops(
        2 * tokens * (shape.layer * shape.layers - unwanted) + 2.5 * attention(shape, pairs),
        2 * tokens * (2 * adapter - spared),
    )


def head(shape: Shape, tokens: float, products: float = 3.0) -> Flops:
    """Both logits and the gradient by the student's hidden states."""
    return Flops(2 * products * tokens * shape.head)


def step_flops(config: Config, shape: Shape, load: Load) -> dict[str, Flops]:
    """Of one step of one process, by part."""
    targets = PROJECTIONS if "all-linear" in config.lora.targets else tuple(config.lora.targets)
    adapter = shape.adapter(config.lora.r, targets)
    sampling = 0 if config.rollout.merge and config.engine.kind == "hf" else adapter
    student: Packed = load.student
    passes = forward(shape, adapter, student.tokens, student.pairs)
    again = passes if config.train.recompute else Flops()
    decode = Flops()
    prefill = Flops()
    for call in load.calls:
        decode += forward(shape, sampling, call.tokens, call.read) + head(shape, call.tokens, 1)
        prefill += forward(shape, sampling, call.prefilled, call.prefill_pairs)
    # A masked token costs no gradient product, and the mask begins after a share of the steps.
    kept = config.objective.mask_after + (1 - config.objective.mask_after) * config.objective.keep
    return {
        "rollout prefill": prefill,
        "rollout decode": decode,
        "teacher forward": forward(shape, adapter, load.teacher.tokens, load.teacher.pairs),
        "student forward": passes,
        "student backward": backward(shape, adapter, student.tokens, student.pairs, targets) + again,
        "head": head(shape, load.middle, 2 + kept) + head(shape, load.answer),
    }

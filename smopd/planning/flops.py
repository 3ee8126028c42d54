"""Operations of a step by part, counted like torch's FlopCounterMode: two a weight and token of a product."""

from dataclasses import dataclass

from smopd.config import Config
from smopd.planning.engines import engine_traits
from smopd.planning.load import Load
from smopd.planning.shapes import PROJECTIONS, Names, Shape, adapted_projections


@dataclass(frozen=True)
class Flops:
    """Operations of the base, and of the adapters, which compute in the base's precision."""

    base: float = 0.0
    adapter: float = 0.0

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.base + other.base, self.adapter + other.adapter)

    def times(self, often: int) -> "Flops":
        """The same work so many times."""
        return Flops(self.base * often, self.adapter * often)

    @property
    def total(self) -> float:
        """Both."""
        return self.base + self.adapter


def samples_merged(config: Config) -> bool:
    """Whether rollouts are sampled with the adapter merged into the weights."""
    return config.rollout.merge and engine_traits(config).in_place


def attention(shape: Shape, pairs: float) -> float:
    """Scores and their product with the values, in all layers, for so many query-key pairs."""
    return 4 * pairs * shape.queries * shape.layers


def forward(shape: Shape, adapter: int, tokens: float, pairs: float) -> Flops:
    """The body without its head."""
    return Flops(2 * tokens * shape.layer * shape.layers + attention(shape, pairs), 2 * tokens * adapter)


def backward(shape: Shape, adapter: int, tokens: float, pairs: float, targets: Names = PROJECTIONS) -> Flops:
    """Gradients by inputs for the frozen base, by inputs and by weights for the adapter."""
    sizes = shape.projections()
    first = ("q_proj", "k_proj", "v_proj")
    unwanted = sum(sizes[name][0] * sizes[name][1] for name in first)
    rank = adapter / (shape.adapter(1, targets) or 1)
    spared = rank * sum(sizes[name][0] for name in first if name in targets)
    base = 2 * tokens * (shape.layer * shape.layers - unwanted)
    # Attention computes its scores again rather than keep them: five products for the forward pass's two.
    return Flops(base + 2.5 * attention(shape, pairs), 2 * tokens * (2 * adapter - spared))


def head(shape: Shape, tokens: float, products: float = 3.0) -> Flops:
    """Both logits and the gradient by the student's hidden states."""
    return Flops(2 * products * tokens * shape.head)


def step_flops(config: Config, shape: Shape, load: Load) -> dict[str, Flops]:
    """Operations of one step of one process, by part."""
    targets = adapted_projections(config)
    adapter = shape.adapter(config.lora.r, targets)
    sampling = 0 if samples_merged(config) else adapter
    student, teacher, sampled = load.student, load.teacher, load.sampled
    student_forward = forward(shape, adapter, student.tokens, student.pairs)
    student_backward = backward(shape, adapter, student.tokens, student.pairs, targets)
    if config.train.recompute:
        student_backward += student_forward
    decode = forward(shape, sampling, sampled.tokens, sampled.read) + head(shape, sampled.tokens, 1)
    return {
        "rollout prefill": forward(shape, sampling, sampled.prefilled, sampled.prefill_pairs),
        "rollout decode": decode,
        "teacher forward": forward(shape, adapter, teacher.tokens, teacher.pairs).times(load.passes),
        "student forward": student_forward.times(load.passes),
        "student backward": student_backward,
        "head": head(shape, 1, load.products),
    }

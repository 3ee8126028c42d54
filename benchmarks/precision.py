"""`benchmarks precision`: errors of divergences and gradients where hidden states and head are bfloat16.

Student and teacher are bfloat16 rows that differ by so much noise that their divergence has a given size; the
reference is float64 from the same numbers. `ours` is the fused path, `plain` full logits and autograd, both
with logits in float32; `bf16` has its logits in bfloat16, as a model's own head returns them. Errors are
relative, by norms over the tokens. Shapes: N tokens, d width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from smopd.machine import describe_cpu
from smopd.scoring import plain, token_stats
from smopd.scoring.losses import Divergence, RowLoss, Rows, forward_kl, gjs, reverse_kl
from smopd.scoring.products import by_hidden_states, wide_linear
from smopd.scoring.rows import small_divergence
from smopd.seeds import torch_generator
from smopd.tracking import Track, quiet

LEVELS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
LOSSES: tuple[Divergence, ...] = (gjs(0.5), reverse_kl(), forward_kl())
GJS_HIGHEST = 0.5  # gjs ends at ln 2
Made = tuple[torch.Tensor, torch.Tensor]  # divergence [N] and its gradient by hidden states [N, d]


@dataclass(frozen=True)
class Precision:
    """The sizes; the vocabulary is Qwen3's."""

    tokens: int = 8
    width: int = 256
    vocabulary: int = 151936
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """Rows of a student, noise towards its teachers, and a head, both in bfloat16."""

    student_Nd: torch.Tensor
    noise_Nd: torch.Tensor
    weight_Vd: torch.Tensor
    tokens_N: torch.Tensor
    logits_NV: torch.Tensor  # the student's, in float64

    def teacher(self, distance: float) -> torch.Tensor:
        """The student's rows with noise, rounded anew: where there is little of it, few numbers change."""
        return (self.student_Nd.float() + distance * self.noise_Nd).bfloat16()


def make_problem(settings: Precision) -> Problem:
    """Random rows like a model's: few likely tokens, and head rows that have a part in common."""
    g = torch_generator(settings.seed, "bench precision")
    count, width = settings.tokens, settings.width
    weight_Vd = torch.randn(settings.vocabulary, width, generator=g).add_(torch.randn(width, generator=g) / 2)
    student_Nd = torch.randn(count, width, generator=g) * (4 + 4 * torch.rand(count, 1, generator=g))
    noise_Nd = torch.randn(count, width, generator=g)
    tokens_N = torch.randint(settings.vocabulary, (count,), generator=g)
    student_Nd, weight_Vd = student_Nd.bfloat16(), weight_Vd.div_(width**0.5).bfloat16()
    return Problem(student_Nd, noise_Nd, weight_Vd, tokens_N, wide_linear(student_Nd.double(), weight_Vd))


def teacher_at(problem: Problem, loss: Divergence, level: float) -> torch.Tensor:
    """A teacher whose divergence is about `level` in the mean."""
    distance = (2 * level) ** 0.5  # of logits; half its square is a KL, while that is small
    for _ in range(3):
        teacher_NV = wide_linear(problem.teacher(distance), problem.weight_Vd)
        log_s, log_t = problem.logits_NV.float().log_softmax(-1), teacher_NV.log_softmax(-1)
        reached = small_divergence(log_s, log_t, loss.kind, loss.beta).mean().item()
        distance *= (level / max(reached, level / 16)) ** 0.5
    return problem.teacher(distance)


def exact(problem: Problem, teacher_Nd: torch.Tensor, loss: Divergence) -> Made:
    """In float64."""
    student_NV = problem.logits_NV.clone().requires_grad_()
    value = loss.value(
        Rows(student_NV, wide_linear(teacher_Nd.double(), problem.weight_Vd), problem.tokens_N)
    )
    (slope_NV,) = torch.autograd.grad(value.sum(), student_NV)
    return value.detach(), by_hidden_states(slope_NV, problem.weight_Vd)


def _by(path: Callable[..., Any]) -> Callable[[Problem, torch.Tensor, Divergence], Made]:
    def made(problem: Problem, teacher_Nd: torch.Tensor, loss: Divergence) -> Made:
        student_Nd = problem.student_Nd.clone().requires_grad_()
        (stats,) = path(student_Nd, teacher_Nd, problem.weight_Vd, problem.tokens_N, [loss])
        (gradient,) = torch.autograd.grad(stats.divergence.sum(), student_Nd)
        return stats.divergence.detach(), gradient

    return made


def _rounded(problem: Problem, teacher_Nd: torch.Tensor, loss: RowLoss) -> Made:
    student_Nd = problem.student_Nd.clone().requires_grad_()
    rows = (wide_linear(h, problem.weight_Vd).bfloat16().float() for h in (student_Nd, teacher_Nd))
    student_NV, teacher_NV = rows
    value = loss.value(Rows(student_NV, teacher_NV, problem.tokens_N))
    (gradient,) = torch.autograd.grad(value.sum(), student_Nd)
    return value.detach(), gradient


PATHS = {"ours": _by(token_stats), "plain": _by(plain.token_stats), "bf16": _rounded}


def report(settings: Precision, track: Track = quiet) -> dict[str, Any]:
    """Errors of every path for every loss and size of its divergence."""
    problem = make_problem(settings)
    results = []
    with track("bench precision", len(LOSSES) * len(LEVELS)) as update:
        for loss in LOSSES:
            for level in LEVELS:
                wanted = min(level, GJS_HIGHEST) if loss.kind == "gjs" else level
                teacher_Nd = teacher_at(problem, loss, wanted)
                expected = exact(problem, teacher_Nd, loss)
                errors = {
                    name: _errors(path(problem, teacher_Nd, loss), expected) for name, path in PATHS.items()
                }
                row: dict[str, Any] = {"loss": loss.name, "divergence": expected[0].mean().item()}
                for k, of in enumerate(("divergence", "gradient")):
                    row[f"{of}_error"] = {name: error[k] for name, error in errors.items()}
                results.append(row)
                update(len(results), f"{loss.name} {row['divergence']:.1e}")
    return {
        "bench": "precision",
        "machine": describe_cpu(1),
        "settings": asdict(settings),
        "results": results,
    }


def _errors(actual: Made, expected: Made) -> tuple[float, ...]:
    return tuple(((a.double() - b).norm() / b.norm()).item() for a, b in zip(actual, expected, strict=True))

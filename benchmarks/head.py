"""`benchmarks head`: from hidden states to the gradient of a middle turn's loss: `ours` (fused), `plain`
(full logits), `trl` (TRL's chunked kernel), `bare` (three matrix products). N tokens, d width, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from statistics import linear_regression
from typing import Any

import torch

from benchmarks.measure import Case, Work, report_of
from smopd.doctor.speed_parts import random_rows
from smopd.objective import keep_mask
from smopd.scoring import Decision, TokenStats, gjs, plain, token_stats
from smopd.tracking import Track, quiet

OURS = "ours"
Vectors = tuple[torch.Tensor, torch.Tensor]  # divergence and entropy, one value a token


@dataclass(frozen=True)
class Head:
    """The sizes, and the loss's settings."""

    tokens: int = 512
    width: int = 1024
    vocabulary: int = 151936
    reply: int = 64  # tokens of one reply: the mask is drawn within it
    beta: float = 0.5
    clip: float = 0.5
    keep: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """Inputs of the operation. Only `student_Nd` takes a gradient; the head is frozen."""

    student_Nd: torch.Tensor
    teacher_Nd: torch.Tensor
    weight_Vd: torch.Tensor
    tokens_N: torch.Tensor
    lengths: list[int]
    settings: Head

    def first(self, count: int) -> "Problem":
        """The same head with the first tokens only, as one reply."""
        student_Nd = self.student_Nd[:count].detach().clone().requires_grad_()
        teacher_Nd, tokens_N = self.teacher_Nd[:count], self.tokens_N[:count]
        return Problem(student_Nd, teacher_Nd, self.weight_Vd, tokens_N, [len(student_Nd)], self.settings)

    def replies(self, divergence_N: torch.Tensor, entropy_N: torch.Tensor) -> Iterator[Vectors]:
        """The vectors of one reply after the other."""
        return zip(divergence_N.split(self.lengths), entropy_N.split(self.lengths), strict=True)


def make_problem(settings: Head) -> Problem:
    """Random inputs like a model's."""
    count, reply = settings.tokens, settings.reply
    rows = random_rows(count, settings.width, settings.vocabulary, settings.seed)
    student_Nd, teacher_Nd, weight_Vd, tokens_N = rows
    lengths = [min(reply, count - first) for first in range(0, count, reply)]
    return Problem(student_Nd.requires_grad_(), teacher_Nd, weight_Vd, tokens_N, lengths, settings)


def masked_loss(divergence_N: torch.Tensor, entropy_N: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Mean over replies of the clipped divergence's mean over the tokens kept."""
    clip, keep = problem.settings.clip, problem.settings.keep
    replies = problem.replies(divergence_N, entropy_N)
    return torch.stack([d.clamp_max(clip)[keep_mask(h, keep)].mean() for d, h in replies]).mean()


def _ours(p: Problem) -> Vectors:
    def decide(_: int, columns: Sequence[TokenStats]) -> list[Decision]:
        (reply,) = columns
        kept = keep_mask(reply.entropy, p.settings.keep)
        return [Decision(kept.to(reply.entropy), kept & (reply.divergence <= p.settings.clip))]

    inputs = (p.student_Nd, p.teacher_Nd, p.weight_Vd, p.tokens_N)
    (stats,) = token_stats(*inputs, [gjs(p.settings.beta)], lengths=p.lengths, decide=decide)
    return stats.divergence, stats.entropy


def _plain(p: Problem) -> Vectors:
    inputs = (p.student_Nd, p.teacher_Nd, p.weight_Vd, p.tokens_N)
    (stats,) = plain.token_stats(*inputs, [gjs(p.settings.beta)])
    return stats.divergence, stats.entropy


def _trl(p: Problem) -> Vectors:
    # The function under TRL's distillation trainer: one divergence and one entropy a token, beta in the same
    # convention. Its trainer averages them; here our clip and mask give the loss that the others compute.
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    arguments = (p.student_Nd, p.weight_Vd, None, p.teacher_Nd, p.weight_Vd, None, p.settings.beta)
    divergence_N, entropy_N = ChunkedDivergenceFunction.apply(*arguments)
    return divergence_N, entropy_N


def _bare(p: Problem) -> None:
    with torch.no_grad():
        student_NV = p.student_Nd @ p.weight_Vd.T
        teacher_NV = p.teacher_Nd @ p.weight_Vd.T
        p.student_Nd.grad = student_NV @ p.weight_Vd
        del teacher_NV


Variant = Callable[[Problem], Vectors | None]
VARIANTS: dict[str, Variant] = {OURS: _ours, "plain": _plain, "trl": _trl, "bare": _bare}


def forward_backward(variant: str, problem: Problem) -> dict[str, torch.Tensor]:
    """Run a variant to the gradient of the student's hidden states; its loss and vectors, if it has them."""
    vectors = VARIANTS[variant](problem)
    if vectors is None:
        return {}
    loss = masked_loss(*vectors, problem)
    loss.backward()
    return {"loss": loss.detach(), "divergence": vectors[0].detach(), "entropy": vectors[1]}


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work."""
    problem = make_problem(Head(**settings))

    def facts(result: dict[str, torch.Tensor]) -> dict[str, Any]:
        if not result:
            return {}
        assert problem.student_Nd.grad is not None
        replies = problem.replies(result["divergence"], result["entropy"])
        keep, clip = problem.settings.keep, problem.settings.clip
        # Rows that carry no gradient spare us the third product.
        carrying = torch.cat([keep_mask(h, keep) & (d <= clip) for d, h in replies])
        shares = {"clipped": result["divergence"] > clip, "carrying_gradient": carrying}
        gradient = {"loss": result["loss"].item(), "gradient_norm": problem.student_Nd.grad.norm().item()}
        return gradient | {name: rows.double().mean().item() for name, rows in shares.items()}

    few = problem.first(min(8, problem.settings.tokens))
    return Work(lambda: forward_backward(variant, few), lambda: forward_backward(variant, problem), facts)


def report(
    settings: Head, reps: int, slope_tokens: Sequence[int] = (128, 256, 512), track: Track = quiet
) -> dict[str, Any]:
    """Measure all variants, and ours at several N for the slope of its memory."""
    note = "trl: TRL's ChunkedDivergenceFunction on all tokens; the clip and the mask of our loss applied to "
    note += "what it returns"
    variants = list(VARIANTS)
    if find_spec("trl") is None:
        variants.remove("trl")
        note = "trl is not installed: its row is left out (pip install 'smopd[dev]')"
    sizes = sorted({*slope_tokens} - {settings.tokens})
    more = [Case(f"{OURS}, N={n}", "head", OURS, asdict(replace(settings, tokens=n))) for n in sizes]
    report = report_of("head", settings, reps, {OURS: variants[1:]}, track, more)
    memory = {row["name"]: row["peak_mb"] for row in report["results"]}
    points = sorted([(settings.tokens, memory[OURS]), *((n, memory[f"{OURS}, N={n}"]) for n in sizes)])
    by_tokens = {str(n): mb for n, mb in points}
    growth = {"memory_by_tokens": by_tokens, "slope_mb_per_1000_tokens": slope(points)}
    return report | growth | {"notes": [note]}


def slope(points: Sequence[tuple[int, float]]) -> float | None:
    """Least-squares slope in MB per 1,000 tokens; None for fewer than two sizes."""
    sizes, memory = zip(*points, strict=True)
    return 1000 * linear_regression(sizes, memory).slope if len(set(sizes)) > 1 else None

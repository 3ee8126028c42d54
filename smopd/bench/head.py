"""`bench head`: from hidden states to the gradient of the masked, clipped loss, at the size of a real
vocabulary.

Four ways: `ours` (fused), `plain` (full logits), `trl` (TRL's own chunked kernel) and `bare` (the three
matrix products alone, the limit). The first three compute the same loss, that of a middle turn with weight 1
in `smopd.objective.rollout_loss`. It leaves out the model below the head: hidden states are random. N tokens,
d width, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch

from smopd.bench.measure import Case, Work, machine, measure, ratios
from smopd.objective import keep_mask
from smopd.scoring import plain, token_divergence
from smopd.seeds import torch_generator

OURS = "ours"


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
        student = self.student_Nd[:count].detach().clone().requires_grad_()
        return replace(
            self,
            student_Nd=student,
            teacher_Nd=self.teacher_Nd[:count],
            tokens_N=self.tokens_N[:count],
            lengths=[len(student)],
        )


def make_problem(settings: Head) -> Problem:
    """Random inputs with distributions like a model's: few likely tokens, a teacher near the student on most
    positions.
    """
    g = torch_generator(settings.seed, "bench head")
    count, width = settings.tokens, settings.width
    weight_Vd = torch.randn(settings.vocabulary, width, generator=g) / width**0.5
    # The scale of a row is the standard deviation of its logits: at this vocabulary 4 leaves much open, 8
    # leaves a few tokens.
    student_Nd = torch.randn(count, width, generator=g) * (4 + 4 * torch.rand(count, 1, generator=g))
    # Squared, so that most teachers stand close and a few far away, where the divergence passes the clip.
    distance_N1 = 4 * torch.rand(count, 1, generator=g) ** 2
    teacher_Nd = student_Nd + distance_N1 * torch.randn(count, width, generator=g)
    tokens_N = torch.randint(settings.vocabulary, (count,), generator=g)
    lengths = [min(settings.reply, count - first) for first in range(0, count, settings.reply)]
    return Problem(student_Nd.requires_grad_(), teacher_Nd, weight_Vd, tokens_N, lengths, settings)


def needed(divergence_N: torch.Tensor, entropy_N: torch.Tensor, settings: Head) -> torch.Tensor:
    """Which tokens of one reply carry gradient: those the mask keeps and the clip leaves alone."""
    return keep_mask(entropy_N, settings.keep) & (divergence_N <= settings.clip)


def masked_loss(divergence_N: torch.Tensor, entropy_N: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Mean over replies of the clipped divergence's mean over the tokens kept."""
    pieces = zip(divergence_N.split(problem.lengths), entropy_N.split(problem.lengths), strict=True)
    clip, keep = problem.settings.clip, problem.settings.keep
    return torch.stack([d.clamp_max(clip)[keep_mask(h, keep)].mean() for d, h in pieces]).mean()


Vectors = tuple[torch.Tensor, torch.Tensor]  # divergence and entropy, one value a token


def _ours(p: Problem) -> Vectors:
    stats = token_divergence(
        p.student_Nd,
        p.teacher_Nd,
        p.weight_Vd,
        p.tokens_N,
        kind="gjs",
        beta=p.settings.beta,
        lengths=p.lengths,
        needed=lambda reply, _: needed(reply.divergence, reply.entropy, p.settings),
    )
    return stats.divergence, stats.entropy


def _plain(p: Problem) -> Vectors:
    stats = plain.token_divergence(
        p.student_Nd, p.teacher_Nd, p.weight_Vd, p.tokens_N, kind="gjs", beta=p.settings.beta
    )
    return stats.divergence, stats.entropy


def _trl(p: Problem) -> Vectors:
    # The function under TRL's distillation trainer: one divergence and one entropy a token, beta in the same
    # convention. Its trainer averages them; here they go through our clip and mask, so that the loss is the
    # one the others compute.
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


VARIANTS: dict[str, Callable[[Problem], Vectors | None]] = {
    OURS: _ours,
    "plain": _plain,
    "trl": _trl,
    "bare": _bare,
}


def forward_backward(variant: str, problem: Problem) -> dict[str, torch.Tensor]:
    """One variant to the gradient of the student's hidden states; the loss and the vectors, where it has
    them.
    """
    vectors = VARIANTS[variant](problem)
    if vectors is None:
        return {}
    loss = masked_loss(*vectors, problem)
    loss.backward()
    return {"loss": loss.detach(), "divergence": vectors[0].detach(), "entropy": vectors[1]}


def prepare(variant: str, settings: dict[str, Any]) -> Work:
    """The child's work."""
    problem = make_problem(Head(**settings))

    def facts(found: dict[str, torch.Tensor]) -> dict[str, Any]:
        if not found:
            return {}
        assert problem.student_Nd.grad is not None
        pieces = zip(
            found["divergence"].split(problem.lengths), found["entropy"].split(problem.lengths), strict=True
        )
        carrying = torch.cat([needed(d, h, problem.settings) for d, h in pieces])
        return {
            "loss": found["loss"].item(),
            "gradient_norm": problem.student_Nd.grad.norm().item(),
            "clipped": (found["divergence"] > problem.settings.clip).double().mean().item(),
            "carrying_gradient": carrying.double()
            .mean()
            .item(),  # the share of rows our third product is spared is the rest
        }

    warm = min(8, problem.settings.tokens)
    return Work(
        lambda: forward_backward(variant, problem.first(warm)),
        lambda: forward_backward(variant, problem),
        facts,
    )


def report(settings: Head, reps: int, slope_tokens: Sequence[int] = (128, 256, 512)) -> dict[str, Any]:
    """Measure all variants, and ours at several N for the slope of its memory."""
    notes = [
        "trl: TRL's ChunkedDivergenceFunction on all tokens; the clip and the mask of our loss applied to what it returns"
    ]
    variants = list(VARIANTS)
    if find_spec("trl") is None:
        variants.remove("trl")
        notes = ["trl is not installed: its row is left out (pip install 'smopd[dev]')"]
    cases = [Case(v, "head", v, asdict(settings)) for v in variants]
    sizes = sorted({*slope_tokens} - {settings.tokens})
    cases += [Case(f"{OURS}, N={n}", "head", OURS, asdict(replace(settings, tokens=n))) for n in sizes]
    rows = measure(cases, reps, "bench head")
    main, smaller = rows[: len(variants)], rows[len(variants) :]
    points = sorted(
        [(settings.tokens, main[0].peak_mb), *((n, r.peak_mb) for n, r in zip(sizes, smaller, strict=True))]
    )
    return {
        "bench": "head",
        "machine": machine(),
        "settings": asdict(settings),
        "reps": reps,
        "results": [row.to_json() for row in rows],
        "ratios": {OURS: ratios(main[0], main[1:])},
        "memory_by_tokens": {str(n): mb for n, mb in points},
        "slope_mb_per_1000_tokens": slope(points),
        "notes": notes,
    }


def slope(points: Sequence[tuple[int, float]]) -> float | None:
    """Least-squares slope in MB per 1,000 tokens; None for fewer than two sizes."""
    if len({n for n, _ in points}) < 2:
        return None
    mean_n, mean_mb = sum(n for n, _ in points) / len(points), sum(mb for _, mb in points) / len(points)
    return (
        1000
        * sum((n - mean_n) * (mb - mean_mb) for n, mb in points)
        / sum((n - mean_n) ** 2 for n, _ in points)
    )

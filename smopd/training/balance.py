"""Terms balanced by their gradient norms: each term's gradient is kept apart and scaled to the mean of their
norms before they are added, so that a bounded loss is felt beside an unbounded one.
"""

from collections.abc import Sequence

import torch

from smopd.objective.loss import RolloutLoss

# A norm of less than this share of the largest is rounding, as that of a FULL branch whose teacher still
# equals the student: scaled up it would drown the others.
NOISE = 1e-5


class TermGradients:
    """One step's gradients by term, of these parameters."""

    def __init__(self, names: Sequence[str], parameters: Sequence[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.by_term = {name: [torch.zeros_like(p) for p in self.parameters] for name in names}

    def add(self, losses: Sequence[RolloutLoss], rollouts: int) -> None:
        """Add a micro-batch's gradients, divided by the step's rollouts; all or, out of memory, none."""
        found = {}
        for name in self.by_term if losses else ():
            value = torch.stack([loss.terms[name].value for loss in losses]).sum() / rollouts
            if value.requires_grad:
                found[name] = torch.autograd.grad(
                    value, self.parameters, allow_unused=True, retain_graph=True
                )
        for name, gradients in found.items():
            for total, gradient in zip(self.by_term[name], gradients, strict=True):
                total.add_(gradient if gradient is not None else 0)

    def tensors(self) -> list[torch.Tensor]:
        """All of them, for the sum over processes."""
        return [gradient for gradients in self.by_term.values() for gradient in gradients]

    def apply_balanced(self) -> dict[str, float]:
        """Add them, balanced, to the parameters' gradients; their norms by term."""
        if not self.by_term:
            return {}
        squares = [
            torch.stack([gradient.square().sum() for gradient in gradients]).sum()
            for gradients in self.by_term.values()
        ]
        norms = dict(zip(self.by_term, torch.stack(squares).sqrt().tolist(), strict=True))
        significant = {name: norm for name, norm in norms.items() if norm > NOISE * max(norms.values())}
        mean = sum(significant.values()) / max(1, len(significant))
        for name in self.by_term:
            factor = mean / significant[name] if name in significant else 1.0
            for parameter, gradient in zip(self.parameters, self.by_term[name], strict=True):
                assert parameter.grad is not None
                parameter.grad.add_(gradient, alpha=factor)
        return norms

"""Score a step: from the rollouts of all processes to their losses, with the gradient in `grad`. When memory
runs out, less is scored at a time; the update does not depend on how the step is split.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.devices import free_cache
from smopd.errors import UserError, is_out_of_memory
from smopd.models.adapters import student_parameters
from smopd.objective import Moment, Plan, RolloutLoss
from smopd.objective.loss import StepStatistics, step_statistics
from smopd.objective.scoring_requests import token_counts
from smopd.rollout import Peers, Rollout
from smopd.settings import TrainSettings
from smopd.training import sharding
from smopd.training.processes import Processes
from smopd.training.scores import FAST, ScoringPath, score, without_graph

log = logging.getLogger("smopd")
Losses = list[RolloutLoss]
Gradients = dict[str, list[torch.Tensor]]  # by term, for each of the student's parameters
TOTAL = ""  # key of the gradient of all terms together, in place of a term's name
SMALLEST_ROW = 64  # packed tokens
# A norm below this share of the largest is rounding noise, as from a FULL branch whose teacher still equals
# the student; scaled up, it would drown the others.
NOISE = 1e-5


@dataclass
class _Step:
    """What the micro-batches of a step share; `gradients` accumulates over them."""

    peers: Peers
    moment: Moment
    gradients: Gradients
    decided: StepStatistics | None = None


class StepScorer:
    """Scores a plan's steps with one model. Memory reductions made in one step stay for later ones."""

    def __init__(
        self, model: PeftModel, renderer: Renderer, plan: Plan, settings: TrainSettings, processes: Processes,
        sharded: bool = False, path: ScoringPath = FAST,
    ) -> None:  # fmt: skip
        """`sharded`: the base weights are, or will be, sharded over the processes."""
        if plan.balance and sharded:
            raise UserError("method: terms are balanced on whole weights only; train without train.shard")
        self.model, self.renderer, self.plan = model, renderer, plan
        self.student = list(student_parameters(model).values())  # what gets a gradient
        self.settings, self.processes = settings, processes
        self.aligned = sharding.Aligned(processes) if sharded else None
        self.path = self.aligned.path() if self.aligned else path
        self.row_tokens, self.recomputes = settings.row_tokens, False
        if settings.recompute:
            self._recompute()

    def score(self, all_rollouts: Sequence[Rollout], moment: Moment) -> tuple[Losses, dict[str, float]]:
        """Put the mean loss's gradient into `grad`; return all losses and, if balanced, norms. Collective."""
        losses, gradients = self.differentiate(all_rollouts, moment, self.plan.balance)
        total, norms = balance(gradients) if self.plan.balance else (gradients[TOTAL], {})
        for parameter, gradient in zip(self.student, total, strict=True):
            parameter.grad = gradient
        return losses, norms

    def differentiate(
        self, all_rollouts: Sequence[Rollout], moment: Moment, by_term: bool = False
    ) -> tuple[Losses, Gradients]:
        """Return every rollout's loss (CPU, without graph) and the gradient of their mean. Collective."""
        names = [term.name for term in self.plan.scored if by_term] or [TOTAL]
        gradients = {name: [torch.zeros_like(parameter) for parameter in self.student] for name in names}
        rollouts = self.processes.share(all_rollouts)
        step = _Step(Peers(all_rollouts, moment.draw, moment.done), moment, gradients)
        self.model.train()
        step.decided = self._look_ahead(rollouts, step)
        backward = partial(self._backward_with_oom_retry, step=step)
        local_losses = self._map_micro_batches(rollouts, backward)
        if self.aligned:
            sharding.reshard(self.model)
        self.processes.all_reduce([tensor for tensors in gradients.values() for tensor in tensors])
        return self.processes.gather(without_graph(local_losses)), gradients

    def _map_micro_batches(self, rollouts: list[Rollout], work: Callable[[list[Rollout]], Losses]) -> Losses:
        """Apply `work` to each micro-batch; with sharded weights, equally often on every process."""
        size = self.settings.micro_batch
        parts = [rollouts[first : first + size] for first in range(0, len(rollouts), size)]
        missing = self.processes.all_max(len(parts)) - len(parts) if self.aligned else 0
        return [loss for part in [*parts, *([] for _ in range(missing))] for loss in work(part)]

    def _look_ahead(self, rollouts: list[Rollout], step: _Step) -> StepStatistics | None:
        """Divisors over a group or the step; from a pass without gradient, weights that need all replies."""
        if not any(term.per != "reply" or term.needs_whole_step for term in self.plan.scored):
            return None
        replies = [r.replies() for r in step.peers.rollouts]
        divisors = token_counts(replies, self.plan, step.moment, step.peers)
        if not self.plan.needs_whole_step:
            return StepStatistics({}, divisors)
        with torch.no_grad():
            local_losses = self._map_micro_batches(rollouts, lambda part: self._score(part, step))
        all_losses = self.processes.gather(without_graph(local_losses))
        terms = [term for term in self.plan.scored if term.needs_whole_step]
        surveyed = step_statistics(terms, all_losses, step.moment)
        return StepStatistics(surveyed.weights, {**surveyed.divisors, **divisors})

    def _score(self, part: list[Rollout], step: _Step) -> Losses:
        alternatives = self.settings.alternatives if self.settings.save_tokens else 0
        return score(
            self.model, self.renderer, part, self.plan, step.moment, step.peers, self.row_tokens, self.path,
            step.decided, alternatives,
        )  # fmt: skip

    def _backward(self, part: list[Rollout], step: _Step) -> Losses:
        """Score one micro-batch and add its gradient; add nothing if memory runs out."""
        losses = self._score(part, step)
        by_term: dict[str, Sequence[torch.Tensor | None]] = {}
        for name in step.gradients:
            values = [loss.terms[name].value if name else loss.total for loss in losses]
            values = values or [torch.zeros((), device=self.processes.device)]
            mean = torch.stack(values).sum() / len(step.peers.rollouts)
            mean = self.aligned.anchored(mean) if self.aligned else mean
            if mean.requires_grad:
                again = len(step.gradients) > 1
                by_term[name] = torch.autograd.grad(mean, self.student, allow_unused=True, retain_graph=again)
        for name, gradients in by_term.items():
            for total, gradient in zip(step.gradients[name], gradients, strict=True):
                total.add_(gradient if gradient is not None else 0)
        return losses

    def _backward_with_oom_retry(self, part: list[Rollout], step: _Step) -> Losses:
        """`_backward`; when out of memory, retry with half the rollouts, then with less memory for one."""
        while True:
            try:
                return self._backward(part, step)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).splitlines()[0]
            free_cache()
            if not self.aligned and len(part) > 1:
                way = "again in two parts, which changes nothing else"
                log.warning("out of memory in scoring %d rollouts: %s", len(part), way)
                halves = (part[: len(part) // 2], part[len(part) // 2 :])
                return [loss for half in halves for loss in self._backward_with_oom_retry(half, step)]
            self._reduce_memory(reason)

    def _reduce_memory(self, reason: str) -> None:
        """Switch to the next way of scoring one rollout in less memory; a UserError if none is left."""
        if self.aligned or (self.recomputes and self.row_tokens <= SMALLEST_ROW):
            advice = "set train.recompute=true, lower train.row_tokens or the token limits of [rollout]"
            other = "or use a smaller model (smopd plan tells what fits)"
            where = f"out of memory in scoring with rows of {self.row_tokens} tokens: {reason}"
            raise UserError(f"{where}\n{advice}, {other}")
        # All rows of a rollout stay in memory until backward, so smaller rows alone would not help.
        if not self.recomputes:
            self._recompute()
            way = "from now on with train.recompute"
        else:
            self.row_tokens = max(SMALLEST_ROW, self.row_tokens // 2)
            way = f"again with rows of {self.row_tokens} tokens"
        log.warning("out of memory in scoring: %s, which changes nothing else", way)

    def _recompute(self) -> None:
        base: Any = self.model.get_base_model()
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.recomputes = True


def balance(gradients: Gradients) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Sum the terms' gradients, scaled to equal norms so that bounded losses count; return norms, too."""
    squares = [torch.stack([g.square().sum() for g in of_term]).sum() for of_term in gradients.values()]
    norms = dict(zip(gradients, torch.stack(squares).sqrt().tolist(), strict=True))
    significant = {name: norm for name, norm in norms.items() if norm > NOISE * max(norms.values())}
    mean = sum(significant.values()) / max(1, len(significant))
    total = [torch.zeros_like(g) for g in next(iter(gradients.values()))]
    for name, of_term in gradients.items():
        factor = mean / significant[name] if name in significant else 1.0
        for into, gradient in zip(total, of_term, strict=True):
            into.add_(gradient, alpha=factor)
    return total, norms

"""Scoring a step: from the rollouts of all processes to their losses, with the gradient in `grad`.

What must be known of the whole step is found in a pre-pass; then micro-batch by micro-batch is scored and
differentiated, with less at a time where memory runs out. The update does not depend on how the step is cut.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.devices import free_cache
from smopd.errors import UserError, is_out_of_memory
from smopd.models.adapters import student_parameters
from smopd.objective.loss import RolloutLoss, Survey, survey
from smopd.objective.plan import Plan
from smopd.objective.tokens import Moment
from smopd.objective.units import token_counts
from smopd.rollout.play import Peers, Rollout
from smopd.settings import TrainSettings
from smopd.training import sharding
from smopd.training.balance import TermGradients
from smopd.training.processes import Processes
from smopd.training.scores import FAST, ScoringPath, score, without_graph

log = logging.getLogger("smopd")
SMALLEST_ROW = 64  # packed tokens


@dataclass(frozen=True)
class _Step:
    """What every micro-batch of a step is scored with."""

    peers: Peers
    moment: Moment
    decided: Survey | None = None
    by_term: TermGradients | None = None

    @property
    def total(self) -> int:
        """The number of rollouts on all processes, by which gradients are divided."""
        return len(self.peers.rollouts)


class StepScorer:
    """Scores a plan's steps with one model. What it learns about memory holds for the steps that follow."""

    def __init__(
        self, model: PeftModel, renderer: Renderer, plan: Plan, settings: TrainSettings, processes: Processes,
        sharded: bool = False, path: ScoringPath = FAST,
    ) -> None:  # fmt: skip
        """`sharded`: the base weights are split among the processes, or will be."""
        if plan.balance and sharded:
            raise UserError("method: terms are balanced on whole weights only; train without train.shard")
        self.model, self.renderer, self.plan = model, renderer, plan
        self.settings, self.processes = settings, processes
        self.aligned = sharding.Aligned(processes) if sharded else None
        self.path = self.aligned.path() if self.aligned else path
        self.row_tokens = settings.row_tokens
        self.recomputes = False
        if settings.recompute:
            self._recompute()

    @cached_property
    def student(self) -> list[torch.nn.Parameter]:
        """The parameters that get a gradient."""
        return list(student_parameters(self.model).values())

    def score(
        self, all_rollouts: Sequence[Rollout], moment: Moment
    ) -> tuple[list[RolloutLoss], dict[str, float]]:
        """The loss of every rollout, on the CPU and without graph, and the gradient norms of balanced terms.

        `grad` holds the gradient of the rollouts' mean loss, summed over the processes. Each of them scores
        its share. Collective.
        """
        for parameter in self.student:
            parameter.grad = torch.zeros_like(parameter)
        if self.plan.balance:
            losses, by_term = self.score_by_term(all_rollouts, moment)
            return losses, by_term.apply_balanced()
        local_losses = self._local_losses(all_rollouts, moment)
        self.processes.all_reduce([p.grad for p in self.student if p.grad is not None])
        return self.processes.gather(without_graph(local_losses)), {}

    def score_by_term(
        self, all_rollouts: Sequence[Rollout], moment: Moment
    ) -> tuple[list[RolloutLoss], TermGradients]:
        """The same, with each term's gradient apart and `grad` left alone. Collective."""
        by_term = TermGradients([term.name for term in self.plan.scored], self.student)
        local_losses = self._local_losses(all_rollouts, moment, by_term)
        self.processes.all_reduce(by_term.tensors())
        return self.processes.gather(without_graph(local_losses)), by_term

    def _local_losses(
        self, all_rollouts: Sequence[Rollout], moment: Moment, by_term: TermGradients | None = None
    ) -> list[RolloutLoss]:
        """Losses of our share; their part of the gradient is added to `by_term` or, without it, to `grad`."""
        rollouts = self.processes.share(all_rollouts)
        step = _Step(Peers(all_rollouts, moment.draw, moment.done), moment, by_term=by_term)
        self.model.train()
        step = replace(step, decided=self._look_ahead(rollouts, step))
        losses = self._in_parts(rollouts, lambda part: self._backward_with_oom_retry(part, step))
        if self.aligned:
            sharding.reshard(self.model)
        return losses

    def _in_parts(
        self, rollouts: list[Rollout], work: Callable[[list[Rollout]], list[RolloutLoss]]
    ) -> list[RolloutLoss]:
        """Micro-batch by micro-batch; where weights are sharded every process makes as many calls."""
        size = self.settings.micro_batch
        parts = [rollouts[first : first + size] for first in range(0, len(rollouts), size)]
        missing = self.processes.all_max(len(parts)) - len(parts) if self.aligned else 0
        return [loss for part in [*parts, *([] for _ in range(missing))] for loss in work(part)]

    def _look_ahead(self, rollouts: list[Rollout], step: _Step) -> Survey | None:
        """What must be known of the whole step before any of it counts: divisors of means over a group or the
        step and, after scoring everything once without gradient, token weights that depend on all replies.
        """
        if not any(term.per != "reply" or term.needs_survey for term in self.plan.scored):
            return None
        replies = [r.replies() for r in step.peers.rollouts]
        divisors = token_counts(replies, self.plan, step.moment, step.peers)
        if not self.plan.needs_survey:
            return Survey({}, divisors)
        with torch.no_grad():
            local_losses = self._in_parts(rollouts, lambda part: self._score(part, step))
        all_losses = self.processes.gather(without_graph(local_losses))
        found = survey([term for term in self.plan.scored if term.needs_survey], all_losses, step.moment)
        return Survey(found.weights, {**found.divisors, **divisors})

    def _score(self, part: list[Rollout], step: _Step) -> list[RolloutLoss]:
        alternatives = self.settings.alternatives if self.settings.save_tokens else 0
        return score(
            self.model, self.renderer, part, self.plan, step.moment, step.peers, self.row_tokens, self.path,
            step.decided, step.total, alternatives,
        )  # fmt: skip

    def _backward(self, part: list[Rollout], step: _Step) -> list[RolloutLoss]:
        """Score one micro-batch and add its gradient: all of it or, where memory runs out, none."""
        losses = self._score(part, step)
        totals = [loss.total for loss in losses] or [torch.zeros((), device=self.processes.device)]
        loss = torch.stack(totals).sum() / step.total
        loss = self.aligned.anchored(loss) if self.aligned else loss
        if step.by_term:
            step.by_term.add(losses, step.total)
        elif loss.requires_grad:
            gradients = torch.autograd.grad(loss, self.student, allow_unused=True)
            for parameter, gradient in zip(self.student, gradients, strict=True):
                if gradient is not None and parameter.grad is not None:
                    parameter.grad += gradient
        return losses

    def _backward_with_oom_retry(self, part: list[Rollout], step: _Step) -> list[RolloutLoss]:
        """`_backward`; out of memory, again with half of the rollouts, then in ways that need less."""
        while True:
            try:
                return self._backward(part, step)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).splitlines()[0]
            free_cache()
            if not self.aligned and len(part) > 1:
                log.warning(
                    "out of memory in scoring %d rollouts: again in two parts, which changes nothing else",
                    len(part),
                )
                middle = len(part) // 2
                halves = (part[:middle], part[middle:])
                return [loss for half in halves for loss in self._backward_with_oom_retry(half, step)]
            self._reduce_memory(reason)

    def _reduce_memory(self, reason: str) -> None:
        """Choose the next best way to score one rollout in less memory; an error where there is none left."""
        if self.aligned or (self.recomputes and self.row_tokens <= SMALLEST_ROW):
            raise UserError(
                f"out of memory in scoring with rows of {self.row_tokens} tokens: {reason}\n"
                "set train.recompute=true, lower train.row_tokens or the token limits of [rollout], or use a "
                "smaller model (smopd plan tells what fits)"
            )
        # All rows of a rollout stay in memory until backward: smaller ones alone would not help.
        if not self.recomputes:
            self._recompute()
            log.warning(
                "out of memory in scoring: from now on with train.recompute, which changes nothing else"
            )
        else:
            self.row_tokens = max(SMALLEST_ROW, self.row_tokens // 2)
            log.warning(
                "out of memory in scoring: again with rows of %d tokens, which changes nothing else",
                self.row_tokens,
            )

    def _recompute(self) -> None:
        base: Any = self.model.get_base_model()
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.recomputes = True

"""The training loop: play, grade, cut, score the plan's terms, total, step. It runs any method, because a
method is a plan.

Every random choice is derived from (seed, purpose, step, example, sample, turn), so a run that was stopped
and started again repeats the uninterrupted one, on any number of processes: each takes a share of a step's
rollouts, and what they compute is added up.
"""

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from math import cos, inf, isfinite, pi
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.data.trial import refuse_failing_verifiers
from smopd.devices import free_cache
from smopd.errors import EngineLost, UserError, is_out_of_memory
from smopd.models import load_model, resolve_adapter
from smopd.models.adapters import adapter_parameters, attach, merged, student_parameters, update_teacher
from smopd.objective.loss import RolloutLoss, Survey, survey
from smopd.objective.plan import Plan
from smopd.objective.tokens import Moment
from smopd.objective.units import token_counts
from smopd.rollout.assembly import refuse_processes, training_driver
from smopd.rollout.lengths import refuse_too_long
from smopd.rollout.play import Peers, Rollout
from smopd.runs.tokens import teacher_contexts, token_columns
from smopd.runs.writer import RunFolder
from smopd.scoring.passes import check_head
from smopd.seeds import derive
from smopd.settings import OptimSettings
from smopd.training import sharding
from smopd.training.balance import TermGradients
from smopd.training.check import check_training
from smopd.training.guards import Guards
from smopd.training.hooks import Hooks
from smopd.training.interrupt import Stopped, interruptible
from smopd.training.metrics import step_metrics
from smopd.training.monitor import Monitor
from smopd.training.no_gradient import explain
from smopd.training.player import StepPlayer
from smopd.training.processes import Processes
from smopd.training.scores import FAST, score, without_graph
from smopd.training.turn_accuracy import turn_accuracy

log = logging.getLogger("smopd")
Report = Callable[[dict[str, Any]], None]


class Trainer:
    """One run: model, data, engine, optimizer and folder, taken one step at a time."""

    def __init__(
        self, config: Config, folder: RunFolder, processes: Processes | None = None,
        examples: list[Example] | None = None,
    ) -> None:  # fmt: skip
        """`examples`: those that `check_training` found for the config; without them it is asked here."""
        self.config, self.folder = config, folder
        self.plan = plan_of(config)
        self.processes = processes or Processes()
        refuse_processes(config, self.processes.world_size)
        self.sharded = self.processes.world_size > 1 and (config.train.shard or self.processes.asks_to_shard)
        examples = check_training(config) if examples is None else examples
        self.processes.on_first(lambda: refuse_failing_verifiers(examples))
        device = self.processes.device
        chat = load_model(config, "cpu" if self.sharded else device)  # sharded, no device need hold all of it
        self.renderer: Renderer = chat.renderer
        adapter = resolve_adapter(config.model.adapter) if config.model.adapter else None
        self.model: PeftModel = attach(chat.model, config.lora, config.seed, adapter)
        for parameter in adapter_parameters(self.model):
            parameter.data = parameter.data.to(device)
        self.recomputes = False
        if config.train.recompute:
            self._recompute()
        self.student = list(student_parameters(self.model).values())
        self.optimizer = torch.optim.AdamW(
            self.student,
            lr=config.optim.lr,
            betas=(config.optim.beta1, config.optim.beta2),
            eps=config.optim.eps,
            weight_decay=config.optim.weight_decay,
        )
        self.by_term: TermGradients | None = None
        self.cause = ""  # why the last step that had no gradient had none
        if self.plan.balance and self.sharded:
            raise UserError("method: terms are balanced on whole weights only; train without train.shard")
        self.row_tokens = config.train.row_tokens
        self.aligned = sharding.Aligned(self.processes) if self.sharded else None
        if self.sharded:
            sharding.shard(self.model)
        refuse_too_long(self.renderer, examples, [play.view for play in self.plan.plays])
        check_head(self.model, self.renderer.ids([{"role": "user", "content": "Hello."}]))
        adapters = (
            folder.path
            / "adapters"
            / (f"process-{self.processes.rank}" if self.processes.world_size > 1 else "")
        )
        self.driver = training_driver(config, self.renderer, self.model, adapters)
        self.engine = self.driver.engine
        self.player = StepPlayer(config, self.plan, examples, self.driver, self.processes)
        saved = self.processes.on_first(self._begin)
        self.step = folder.restore(self.model, self.optimizer, saved) if saved else 0
        if self.processes.first:
            folder.cut_metrics(self.step)
        self.processes.barrier()
        self.monitor = Monitor(self)
        self.guards = Guards(config, self.plan, folder, len(self.monitor.examples))

    def _begin(self) -> Path | None:
        self.folder.begin()
        return self.folder.soundest()

    def train(self, report: Report | None = None, hooks: Hooks | None = None) -> None:
        """Run to the last step. Raises `Stopped` after Ctrl-C, with everything saved."""
        hooks, any_of = hooks or Hooks(), self.processes.any_of
        every, last = self.config.train.checkpoint_every, self.config.train.steps
        # Several processes must stop at the same step, so there Ctrl-C waits for its end.
        with interruptible(at_once=self.processes.world_size == 1) as interrupt, self.monitor:
            try:
                self.monitor.catch_up()
                with interrupt.protect():
                    self._warn()
                hooks.begin(self)
                while self.step < last and not self.monitor.enough() and not any_of(hooks.stop):
                    if any_of(interrupt.asked):
                        raise KeyboardInterrupt
                    hooks.step_begin(self.step + 1)
                    row = self.take_step(self.step + 1, interrupt.protect)
                    hooks.step_end(row)
                    due = self.monitor.due(self.step, any_of(hooks.evaluate))
                    if due or any_of(hooks.save) or self.step % every == 0 or self.step == last:
                        with interrupt.protect():
                            self.save()
                        hooks.saved(self.step)
                    self.monitor.log(row)
                    if due:
                        hooks.evaluated(self.step, self.monitor.evaluate(self.step))
                    with interrupt.protect():
                        self._warn()
                    if report:
                        report(row)
                    self._check_skipped()
                with interrupt.protect():
                    self.save()
                hooks.end()
            except (KeyboardInterrupt, EngineLost) as reason:
                # The weights are those after the last whole step: a half-done one has changed nothing yet.
                with interrupt.protect(stopping=True):
                    if self.step:
                        self.save()
                if isinstance(reason, EngineLost):
                    raise EngineLost(f"{reason}\n{self._saved()}") from None
                raise Stopped(self.step) from None
            finally:
                self.engine.close()

    def _warn(self) -> None:
        """Say what the last steps give reason to; at a start, what a kill kept from being said."""
        if self.processes.first:
            self.guards.look(self.step)

    def _saved(self) -> str:
        return (
            f"stopped after step {self.step}; everything is saved in {self.folder.path}. "
            "The same command goes on from there."
        )

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        if self.processes.first:
            self.folder.save_checkpoint(
                self.step, self.model, self.optimizer, self.config.train.keep_checkpoints
            )

    def take_step(self, step: int, protect: Callable[[], Any]) -> dict[str, Any]:
        """One update; its row of metrics. `protect()` keeps Ctrl-C from parting weights and row."""
        began = time.perf_counter()
        torch.manual_seed(derive(self.config.seed, "step", step))  # for dropout, where a recipe has some
        usage = replace(self.engine.usage)
        moment = Moment(step, self.config.train.steps, (self.config.seed, step))
        with self.sampling(step - 1):
            conversations = self.player.play(step)
        self.engine.sleep()
        rollouts, everyone = self.player.judged(conversations)
        rolled = time.perf_counter()
        peers = Peers(everyone, moment.draw, moment.done)
        own = self._scored(rollouts, peers, moment)
        gradients = [p.grad for p in self.student if p.grad is not None]
        self.processes.all_reduce(self.by_term.tensors() if self.by_term else gradients)
        norms = self.by_term.put() if self.by_term else {}
        differentiated = time.perf_counter()
        # One row for all processes, made from all rollouts in their order: it does not depend on who computed
        # what.
        losses = self.processes.gather(without_graph(own))
        used = self.processes.gather(
            [(self.engine.usage.reused - usage.reused, self.engine.usage.prompt - usage.prompt)]
        )
        prompt = sum(p for _, p in used)
        row = {
            "step": step,
            **step_metrics(everyone, losses, self.plan, moment),
            **turn_accuracy(self, everyone, step),
            "rollout/reused": sum(r for r, _ in used) / prompt if prompt else None,
            **{f"grad_norm/{name}": norm for name, norm in norms.items()},
        }
        if (row["rollout/logp_gap"] or 0) > self.config.engine.gap_warning:
            log.warning(
                "step %d: replies were sampled from another policy than the one trained (mean "
                "|log-probability gap| %.3g, engine.gap_warning %.3g): other weights, precision or kernels; "
                "see docs/engines.md",
                step, row["rollout/logp_gap"], self.config.engine.gap_warning,
            )  # fmt: skip
        with protect():
            row |= self._update(step, row["loss"] or 0.0)
            if row["skipped"] or row["empty"]:
                self.cause, stops = explain(everyone, losses, self.plan, moment, not row["skipped"])
                row["skipped"] = int(stops)
                log.warning("step %d: no gradient, the step changed nothing: %s", step, self.cause)
            self.step = step
            ended = time.perf_counter()
            row |= {
                "seconds/rollout": rolled - began,
                "seconds/scoring": differentiated - rolled,
                "seconds/update": ended - differentiated,
                "seconds/step": ended - began,
            }
            if self.processes.first:
                if self.config.train.save_rollouts or row["skipped"]:
                    records = [_record(r, loss, self.plan) for r, loss in zip(everyone, losses, strict=True)]
                    self.folder.save_rollouts(step, records)
                if self.config.train.save_tokens:
                    columns = token_columns([r.example.id for r in everyone], losses, self.plan)
                    contexts = teacher_contexts(losses, self.plan, peers, self.renderer)
                    self.folder.save_tokens(step, columns.with_pieces(self.renderer), contexts)
                self.folder.add_metrics(row)
        return row

    def _scored(self, rollouts: list[Rollout], peers: Peers, moment: Moment) -> list[RolloutLoss]:
        """Losses of our rollouts; their gradient, divided by the rollouts of all processes, is in `grad`."""
        for parameter in self.student:
            parameter.grad = torch.zeros_like(parameter)
        if self.plan.balance:
            self.by_term = TermGradients([term.name for term in self.plan.scored], self.student)
        self.model.train()
        decided = self._survey(rollouts, peers, moment)
        losses = self._in_parts(rollouts, lambda part: self._differentiated(part, peers, moment, decided))
        if self.sharded:
            sharding.reshard(self.model)
        return losses

    def _in_parts(
        self, rollouts: list[Rollout], work: Callable[[list[Rollout]], list[RolloutLoss]]
    ) -> list[RolloutLoss]:
        """Micro-batch by micro-batch; where weights are sharded every process makes as many calls."""
        size = self.config.train.micro_batch
        parts = [rollouts[first : first + size] for first in range(0, len(rollouts), size)]
        missing = self.processes.all_max(len(parts)) - len(parts) if self.sharded else 0
        return [loss for part in [*parts, *([] for _ in range(missing))] for loss in work(part)]

    def _survey(self, rollouts: list[Rollout], peers: Peers, moment: Moment) -> Survey | None:
        """What must be known of the whole step before any of it counts: divisors of means over a group or the
        step and, after scoring everything once without gradient, token weights that depend on all replies.
        """
        if not any(term.per != "reply" or term.needs_survey for term in self.plan.scored):
            return None
        divisors = token_counts([r.replies() for r in peers.rollouts], self.plan, moment, peers)
        if not self.plan.needs_survey:
            return Survey({}, divisors)
        with torch.no_grad():
            own = self._in_parts(rollouts, lambda part: self._score(part, peers, moment, None))
        scored = self.processes.gather(without_graph(own))
        found = survey([term for term in self.plan.scored if term.needs_survey], scored, moment)
        return Survey(found.weights, {**found.divisors, **divisors})

    def _score(
        self, part: list[Rollout], peers: Peers, moment: Moment, decided: Survey | None
    ) -> list[RolloutLoss]:
        path = self.aligned.path() if self.aligned else FAST
        train = self.config.train
        return score(
            self.model, self.renderer, part, self.plan, moment, peers, self.row_tokens, path, decided,
            len(peers.rollouts), train.alternatives if train.save_tokens else 0,
        )  # fmt: skip

    def _differentiated(
        self, part: list[Rollout], peers: Peers, moment: Moment, decided: Survey | None
    ) -> list[RolloutLoss]:
        """Score one micro-batch and add its gradient; out of memory, again with less at a time."""
        while True:
            try:
                return self._attempt(part, peers, moment, decided)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = str(error).splitlines()[0]
            free_cache()
            if not self.sharded and len(part) > 1:
                log.warning(
                    "out of memory in scoring %d rollouts: again in two parts, which changes nothing else",
                    len(part),
                )
                middle = len(part) // 2
                halves = [
                    self._differentiated(half, peers, moment, decided)
                    for half in (part[:middle], part[middle:])
                ]
                return [*halves[0], *halves[1]]
            self._use_less(reason)

    def _use_less(self, reason: str) -> None:
        """The next best way to score one rollout in less memory; an error where there is none left."""
        if self.sharded or (self.recomputes and self.row_tokens <= SMALLEST_ROW):
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

    def _attempt(
        self, part: list[Rollout], peers: Peers, moment: Moment, decided: Survey | None
    ) -> list[RolloutLoss]:
        losses = self._score(part, peers, moment, decided)
        totals = [loss.total for loss in losses] or [torch.zeros((), device=self.processes.device)]
        total = torch.stack(totals).sum()
        loss = total / len(peers.rollouts)
        loss = self.aligned.anchored(loss) if self.aligned else loss
        if self.by_term:
            self.by_term.add(losses, len(peers.rollouts))
        elif loss.requires_grad:
            gradients = torch.autograd.grad(loss, self.student, allow_unused=True)
            for parameter, gradient in zip(self.student, gradients, strict=True):
                if gradient is not None and parameter.grad is not None:
                    parameter.grad += gradient
        return losses

    def sampling(self, version: int) -> Any:
        """Inside, the engine samples from the student after `version` steps."""
        self.engine.refresh(version, self.folder.adapter_saver(self.model))
        if not self.engine.traits.in_place:
            return nullcontext()
        if self.sharded:
            return sharding.unsharded(self.model)
        return merged(self.model) if self.config.rollout.merge else nullcontext()

    def _update(self, step: int, loss: float) -> dict[str, Any]:
        """Clip, optimizer step, teacher average. No gradient, or one or a loss that is not finite, changes
        nothing.
        """
        optim = self.config.optim
        norm = torch.nn.utils.clip_grad_norm_(self.student, optim.grad_clip or inf).item()
        rate = learning_rate(step, self.config.train.steps, optim)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        finite = isfinite(norm) and isfinite(loss)
        if finite and norm > 0:
            self.optimizer.step()
            if step % self.config.teacher.every == 0:
                update_teacher(self.model, self.config.teacher.decay)
        self.optimizer.zero_grad(set_to_none=True)
        return {
            "grad_norm": norm if isfinite(norm) else None,
            "lr": rate,
            "skipped": int(not finite),
            "empty": int(norm == 0),
        }

    def _check_skipped(self) -> None:
        """Stop where one step after the other has no gradient: more of the same would not mend it."""
        most = self.config.train.max_skipped
        rows = self.processes.broadcast(self.folder.metrics()[-most:] if self.processes.first else None) or []
        if len(rows) == most and all(row["skipped"] for row in rows):
            self.save()
            raise UserError(
                f"{most} steps in a row had no gradient (method {self.config.method}), the last of them step "
                f"{self.step}: {self.cause}.\nTheir conversations, with their losses, are in "
                f"{self.folder.path / 'rollouts'}. Mend that term's part in the method's file; if a loss is "
                "not finite, lower optim.lr or set model.dtype to float32. Raise train.max_skipped to go on"
            )


SMALLEST_ROW = 64  # packed tokens


def learning_rate(step: int, total: int, optim: OptimSettings) -> float:
    """The rate at `step` (from 1): linear warm-up, then constant or falling to zero at the end."""
    if step <= optim.warmup_steps:
        return optim.lr * step / optim.warmup_steps
    progress = (step - optim.warmup_steps) / max(1, total - optim.warmup_steps)
    factor = {"constant": 1.0, "linear": 1 - progress, "cosine": 0.5 * (1 + cos(pi * progress))}[
        optim.schedule
    ]
    return optim.lr * factor


def _record(rollout: Rollout, loss: RolloutLoss, plan: Plan) -> dict[str, Any]:
    """What a person or a script wants to read of one rollout."""
    verdict = rollout.verdict
    turns = {played.view: played.to_json()["turns"] for played in rollout.conversations}
    return {
        "id": rollout.example.id,
        "task": rollout.example.task,
        **({"sample": rollout.sample} if rollout.sample else {}),
        **{play.view: turns.get(play.view) for play in plan.plays},
        "correct": verdict.correct if verdict else None,
        "extracted": verdict.extracted if verdict else None,
        "expected": dict(rollout.example.answer),
        "loss": loss.total.item() if torch.isfinite(loss.total) else None,
    }

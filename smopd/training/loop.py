"""The training loop: play, verify, score, update. It runs any method, because a method is a plan.

Every random choice is derived from (seed, purpose, step, example, sample, turn), so a resumed run repeats the
uninterrupted one, on any number of processes. Each takes a share of a step's rollouts; the sums are the same.
"""

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from math import cos, inf, isfinite, pi
from typing import Any

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.chat.template import refuse_too_long
from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.data.check import refuse_failing_verifiers
from smopd.errors import EngineLost, UserError
from smopd.models import load_model, resolve_adapter
from smopd.models.adapters import StudentAdapter, adapter_parameters, attach, merged, update_teacher
from smopd.objective import Moment, Plan, RolloutLoss
from smopd.rollout import Peers, Rollout
from smopd.rollout.assembly import refuse_processes, training_driver
from smopd.runs.tokens import teacher_contexts, token_columns
from smopd.runs.writer import RunFolder
from smopd.scoring.passes import check_head
from smopd.seeds import derive
from smopd.settings import OptimSettings
from smopd.training import sharding
from smopd.training.ahead import Ahead, NextBlock
from smopd.training.check import check_training
from smopd.training.guards import give_warnings
from smopd.training.hooks import Hooks
from smopd.training.interrupt import Stopped, interruptible
from smopd.training.metrics import step_metrics
from smopd.training.monitor import Monitor
from smopd.training.no_gradient import explain
from smopd.training.player import StepPlayer
from smopd.training.processes import Processes
from smopd.training.step_scoring import StepScorer

log = logging.getLogger("smopd")
Report = Callable[[dict[str, Any]], None]


class Trainer:
    def __init__(
        self, config: Config, folder: RunFolder, processes: Processes | None = None,
        examples: list[Example] | None = None,
    ) -> None:  # fmt: skip
        """`examples`: what `check_training` returned for the config; by default it is called here."""
        self.config, self.folder = config, folder
        self.plan = plan_of(config)
        self.processes = processes or Processes()
        refuse_processes(config, self.processes.world_size)
        self.sharded = self.processes.world_size > 1 and (config.train.shard or self.processes.asks_to_shard)
        examples = check_training(config) if examples is None else examples
        self.processes.on_first(lambda: refuse_failing_verifiers(examples))
        device = self.processes.device
        chat = load_model(config, "cpu" if self.sharded else device)  # it may not fit on one device
        self.renderer: Renderer = chat.renderer
        adapter = resolve_adapter(config.model.adapter) if config.model.adapter else None
        self.model: PeftModel = attach(chat.model, config.lora, config.seed, adapter)
        for parameter in adapter_parameters(self.model):
            parameter.data = parameter.data.to(device)
        scored = self.model, self.renderer, self.plan
        self.scorer = StepScorer(*scored, config.train, self.processes, self.sharded)
        self.student, optim = self.scorer.student, config.optim
        betas = optim.beta1, optim.beta2
        self.optimizer = torch.optim.AdamW(self.student, optim.lr, betas, optim.eps, optim.weight_decay)
        self.cause = ""  # why the last step without a gradient had none
        if self.sharded:
            sharding.shard(self.model)
        refuse_too_long(self.renderer, examples, [play.view for play in self.plan.plays])
        check_head(self.model, self.renderer.ids([{"role": "user", "content": "Hello."}]))
        place = f"adapters/process-{self.processes.rank}" if self.processes.world_size > 1 else "adapters"
        self.driver = training_driver(config, self.renderer, self.model, folder.path / place)
        self.engine = self.driver.engine
        self.player = StepPlayer(config, self.plan, examples, self.driver, self.processes)
        self.processes.on_first(folder.begin)
        saved = self.processes.on_first(folder.latest_valid_checkpoint)
        self.ahead = Ahead(self.player, config.train.steps)
        self.step = folder.restore(self.model, self.optimizer, saved) if saved else 0
        if saved:
            self.ahead.load(saved, StudentAdapter(self.model))
        if self.processes.first:
            folder.cut_metrics(self.step)
        self.processes.barrier()
        self.monitor = Monitor(config, folder, self.driver, self.processes, self.sampling)

    def train(self, report: Report | None = None, hooks: Hooks | None = None) -> None:
        """Train to the last step. Raises `Stopped` after Ctrl-C, with everything saved."""
        hooks, any_of = hooks or Hooks(), self.processes.any_of
        every, last = self.config.train.checkpoint_every, self.config.train.steps
        # Several processes must stop at the same step, so with them Ctrl-C waits for its end.
        with interruptible(at_once=self.processes.world_size == 1) as interrupt, self.monitor:
            try:
                self.monitor.catch_up(self.step)
                self._warn(interrupt.protect)
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
                    self._warn(interrupt.protect)
                    if report:
                        report(row)
                    self._check_skipped()
                with interrupt.protect():
                    self.save()
                hooks.end()
            except (KeyboardInterrupt, EngineLost) as reason:
                # The weights are those after the last complete step: an unfinished one changes nothing.
                with interrupt.protect(stopping=True):
                    if self.step:
                        self.save()
                if isinstance(reason, EngineLost):
                    saved = f"stopped after step {self.step}; everything is saved in {self.folder.path}"
                    raise EngineLost(f"{reason}\n{saved}. Run the same command to resume.") from None
                raise Stopped(self.step) from None
            finally:
                self.ahead.close()
                self.engine.close()

    def _warn(self, protect: Callable[[], Any]) -> None:
        """Give the warnings that are due; at a start, those that a kill prevented."""
        with protect():
            if self.processes.first:
                give_warnings(self.config, self.plan, self.folder, self.step, len(self.monitor.examples))

    def save(self) -> None:
        if self.processes.first:
            keep = self.config.train.keep_checkpoints
            self.folder.save_checkpoint(self.step, self.model, self.optimizer, keep, self.ahead.save)

    def take_step(self, step: int, protect: Callable[[], Any]) -> dict[str, Any]:
        """Make one update; return its metrics. `protect()` keeps Ctrl-C from separating the two."""
        times = [time.perf_counter()]
        torch.manual_seed(derive(self.config.seed, "step", step))  # for dropout, if a recipe has some
        moment = Moment(step, self.config.train.steps, (self.config.seed, step))
        reused = self._sample(step)
        conversations, stale = self.ahead.take(step)
        all_rollouts = self.player.verify_and_grade(conversations)
        times.append(time.perf_counter())
        losses, norms = self.scorer.score(all_rollouts, moment)
        times.append(time.perf_counter())
        rollout = self.config.rollout
        # Made from all rollouts in order, so it does not depend on which process computed what.
        row = {
            "step": step,
            **step_metrics(all_rollouts, losses, self.plan, moment),
            **self.player.turn_accuracy(all_rollouts, self.model, step),
            "rollout/reused": reused,
            **({"rollout/stale": stale} if rollout.ahead > 1 or rollout.overlap else {}),
            **{f"grad_norm/{name}": norm for name, norm in norms.items()},
        }
        self._warn_of_gap(row)
        with protect():
            row |= self._update(step, row["loss"] or 0.0)
            if row["skipped"] or row["empty"]:
                self.cause, stops = explain(all_rollouts, losses, self.plan, moment, not row["skipped"])
                row["skipped"] = int(stops)
                log.warning("step %d: no gradient, the step changed nothing: %s", step, self.cause)
            self.step = step
            times.append(time.perf_counter())
            for name, (began, ended) in zip(("rollout", "scoring", "update"), pairwise(times), strict=True):
                row[f"seconds/{name}"] = ended - began
            row["seconds/step"] = times[-1] - times[0]
            if self.processes.first:
                self._write(row, all_rollouts, losses, moment)
        return row

    def _sample(self, step: int) -> float | None:
        """Sample the step's block if needed; return the share of prompt tokens that engines had cached."""
        if self.config.rollout.overlap:
            self._sample_overlapping(step)
            return None  # the counts would depend on the timing of the background's requests
        if step in self.ahead:
            return None
        before = replace(self.engine.usage)
        with self.sampling(step - 1):
            self.ahead.sample(step, step - 1)
        self.engine.sleep()
        usage = self.engine.usage
        pairs = self.processes.gather([(usage.reused - before.reused, usage.prompt - before.prompt)])
        prompt = sum(tokens for _, tokens in pairs)
        return sum(reused for reused, _ in pairs) / prompt if prompt else None

    def _sample_overlapping(self, step: int) -> None:
        """At the first step of a block, wait for it and start sampling the next one in the background."""
        if block := self.ahead.interrupted:  # begun before the run was stopped
            self.engine.refresh(block.version, block.policy)
            self.ahead.start(block)
        if step in self.ahead:
            return
        if not self.ahead.collect():  # the run's first block is not sampled in the background
            with self.sampling(step - 1):
                self.ahead.sample(step, step - 1)
        policy = StudentAdapter(self.model)
        self.engine.refresh(step - 1, policy)
        following = self.ahead.block(step)[-1] + 1
        self.ahead.start(NextBlock(following, step - 1, replace(policy, kept=policy.tensors())))

    def _warn_of_gap(self, row: dict[str, Any]) -> None:
        """Warn if replies came from another policy than the one trained; a guard checks stale ones."""
        gap, limit = row["rollout/logp_gap"], self.config.engine.gap_warning
        if (gap or 0) > limit and not row.get("rollout/stale"):
            problem = "replies were sampled from another policy than the one trained"
            gaps = f"mean |log-probability gap| {gap:.3g}, engine.gap_warning {limit:.3g}"
            causes = "other weights, precision or kernels; see docs/gpu.md"
            log.warning("step %d: %s (%s): %s", row["step"], problem, gaps, causes)

    def _write(
        self, row: dict[str, Any], rollouts: list[Rollout], losses: list[RolloutLoss], moment: Moment
    ) -> None:
        """Write the files of a step, its row of metrics last."""
        step, train = row["step"], self.config.train
        if train.save_rollouts or row["skipped"]:
            records = [_record(r, loss, self.plan) for r, loss in zip(rollouts, losses, strict=True)]
            self.folder.save_rollouts(step, records)
        if train.save_tokens:
            columns = token_columns([r.example.id for r in rollouts], losses, self.plan, self.renderer)
            peers = Peers(rollouts, moment.draw, moment.done)
            self.folder.save_tokens(step, columns, teacher_contexts(losses, self.plan, peers, self.renderer))
        self.folder.add_metrics(row)

    def sampling(self, version: int) -> Any:
        """Inside, the engine samples from the student after `version` steps."""
        self.engine.refresh(version, StudentAdapter(self.model))
        if not self.engine.traits.in_place:
            return nullcontext()
        if self.sharded:
            return sharding.unsharded(self.model)
        return merged(self.model) if self.config.rollout.merge else nullcontext()

    def _update(self, step: int, loss: float) -> dict[str, Any]:
        """Clip, step the optimizer, update the teacher. A gradient of 0 or not finite changes nothing."""
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
        shown = norm if isfinite(norm) else None
        return {"grad_norm": shown, "lr": rate, "skipped": int(not finite), "empty": int(norm == 0)}

    def _check_skipped(self) -> None:
        most = self.config.train.max_skipped
        rows = self.processes.broadcast(self.folder.metrics()[-most:] if self.processes.first else None) or []
        if len(rows) == most and all(row["skipped"] for row in rows):
            self.save()
            raise UserError(
                f"{most} steps in a row had no gradient (method {self.config.method}), the last of them step "
                f"{self.step}: {self.cause}.\nTheir conversations, with their losses, are in "
                f"{self.folder.path / 'rollouts'}. Fix that term's part in the method's file; if a loss is "
                "not finite, lower optim.lr or use model.dtype=float32. Raise train.max_skipped to continue"
            )


def learning_rate(step: int, total: int, optim: OptimSettings) -> float:
    """The rate at `step` (from 1): linear warm-up, then constant or decaying to zero."""
    if step <= optim.warmup_steps:
        return optim.lr * step / optim.warmup_steps
    progress = (step - optim.warmup_steps) / max(1, total - optim.warmup_steps)
    factors = {"constant": 1.0, "linear": 1 - progress, "cosine": 0.5 * (1 + cos(pi * progress))}
    return optim.lr * factors[optim.schedule]


def _record(rollout: Rollout, loss: RolloutLoss, plan: Plan) -> dict[str, Any]:
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

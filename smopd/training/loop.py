"""The training loop: roll out, score, step, average. It runs any method, because a method is only settings.

Every random choice is derived from (seed, purpose, step, example, turn), so a run that was stopped and
started again repeats the uninterrupted one, on any number of processes: each takes a share of a step's
rollouts, and what they compute is added up.
"""

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from math import cos, pi
from typing import Any

import torch
from peft import PeftModel

from smopd.chat import Renderer
from smopd.config import Config
from smopd.errors import EngineLost, UserError
from smopd.evaluation.prepare import prepared_examples
from smopd.models import load_model, resolve_adapter
from smopd.models.adapters import adapter_parameters, attach, merged, student_parameters, update_teacher
from smopd.objective import RolloutLoss, masked
from smopd.rollout import Driver, Sampling
from smopd.rollout.factory import make_engine
from smopd.scoring.passes import check_head
from smopd.seeds import derive, rng
from smopd.settings import Optim
from smopd.training import sharding
from smopd.training.interrupt import interruptible
from smopd.training.metrics import step_metrics
from smopd.training.monitor import Monitor
from smopd.training.processes import Processes
from smopd.training.run_folder import RunFolder
from smopd.training.scoring_step import FAST, Rollout, ScoredTurn, score
from smopd.training.tokens import token_columns
from smopd.verify.verifiers import verify_all

log = logging.getLogger("smopd")
Report = Callable[[dict[str, Any]], None]
Scores = tuple[list[RolloutLoss], list[list[ScoredTurn]]]


class Stopped(Exception):
    """Ctrl-C: everything up to `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class Trainer:
    """One run: model, data, engine, optimizer and folder, taken one step at a time."""

    def __init__(self, config: Config, folder: RunFolder, processes: Processes | None = None) -> None:
        self.config, self.folder = config, folder
        check_objective(config)
        self.processes = processes or Processes()
        self.sharded = self.processes.world_size > 1 and (config.train.shard or self.processes.asks_to_shard)
        self.examples = prepared_examples(config, "train")
        device = self.processes.device
        chat = load_model(config, "cpu" if self.sharded else device)  # sharded, no device need hold all of it
        self.renderer: Renderer = chat.renderer
        adapter = str(resolve_adapter(config.model.adapter)) if config.model.adapter else ""
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
        self.row_tokens = config.train.row_tokens
        self.aligned = sharding.Aligned(self.processes) if self.sharded else None
        if self.sharded:
            sharding.shard(self.model)
        check_head(self.model, self.renderer.ids([{"role": "user", "content": "Hello."}]))
        sampling = Sampling(
            config.rollout.temperature,
            config.rollout.answer_tokens,
            config.rollout.top_p,
            config.rollout.top_k,
        )
        rank = max(adapter.r for adapter in self.model.peft_config.values())  # type: ignore[attr-defined]
        adapters = (
            folder.path / "adapters" / (f"process-{self.processes.rank}" if self.processes.world_size > 1 else "")
        )
        self.engine = make_engine(config, self.renderer, config.rollout.batch, adapters, self.model, rank)
        self.driver = Driver(
            self.engine, self.renderer, sampling, config.rollout.middle_tokens, config.chat.history
        )
        if self.processes.first:
            folder.begin()
        saved = self.processes.broadcast(folder.soundest() if self.processes.first else None)
        self.step = folder.restore(self.model, self.optimizer, saved) if saved else 0
        if self.processes.first:
            folder.cut_metrics(self.step)
        self.processes.barrier()
        self.monitor = Monitor(self)
        self._orders: dict[int, list[int]] = {}

    def train(self, report: Report | None = None) -> None:
        """Run to the last step. Raises `Stopped` after Ctrl-C, with everything saved."""
        every, last = self.config.train.checkpoint_every, self.config.train.steps
        # Several processes must stop at the same step, so there Ctrl-C waits for its end.
        with interruptible(at_once=self.processes.world_size == 1) as interrupt, self.monitor:
            try:
                self.monitor.catch_up()
                while self.step < last and not self.monitor.enough():
                    if self.processes.any_of(interrupt.asked):
                        raise KeyboardInterrupt
                    row = self.take_step(self.step + 1, interrupt.protect)
                    due = self.monitor.due(self.step)
                    if due or self.step % every == 0 or self.step == last:
                        with interrupt.protect():
                            self.save()
                    self.monitor.log(row)
                    if due:
                        self.monitor.evaluate(self.step)
                    if report:
                        report(row)
                    self._check_skipped()
                with interrupt.protect():
                    self.save()
            except (KeyboardInterrupt, EngineLost) as reason:
                # The weights are those after the last whole step: a half-done one has changed nothing yet.
                with interrupt.protect():
                    if self.step:
                        self.save()
                if isinstance(reason, EngineLost):
                    raise EngineLost(f"{reason}\n{self._saved()}") from None
                raise Stopped(self.step) from None
            finally:
                self.engine.close()

    def _saved(self) -> str:
        return f"stopped after step {self.step}; everything is saved in {self.folder.path}. The same command goes on from there."

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        if self.processes.first:
            self.folder.save_checkpoint(
                self.step, self.model, self.optimizer, self.config.train.keep_checkpoints
            )

    def take_step(self, step: int, protect: Callable[[], Any]) -> dict[str, Any]:
        """One update; the row of metrics it leaves behind. `protect()` keeps Ctrl-C from parting the weights
        from their row.
        """
        began = time.perf_counter()
        settings = self.config.objective
        torch.manual_seed(derive(self.config.seed, "step", step))  # for dropout, where a recipe has some
        usage = replace(self.engine.usage)
        own = self.roll_out(step)
        rolled = time.perf_counter()
        keep = settings.keep if masked(step, self.config.train.steps, settings.mask_after) else 1.0
        losses, scored = self._scored(own, keep, step)
        self.processes.all_reduce([p.grad for p in self.student if p.grad is not None])
        differentiated = time.perf_counter()
        # One row for all processes, made from all rollouts in their order: it does not depend on who computed
        # what.
        everything = self.processes.gather(
            [(r, _plain(x), _plain(y)) for r, x, y in zip(own, losses, scored, strict=True)]
        )
        rollouts = [r for r, _, _ in everything]
        used = self.processes.gather(
            [(self.engine.usage.reused - usage.reused, self.engine.usage.prompt - usage.prompt)]
        )
        prompt = sum(p for _, p in used)
        row = {
            "step": step,
            **step_metrics(rollouts, [x for _, x, _ in everything], [y for _, _, y in everything], keep),
            "rollout/reused": sum(r for r, _ in used) / prompt if prompt else None,
        }
        if (row["rollout/logp_gap"] or 0) > self.config.engine.gap_warning:
            log.warning(
                "step %d: replies were sampled from another policy than the one trained (mean |log-probability gap| %.3g, "
                "engine.gap_warning %.3g): other weights, precision or kernels; see docs/engines.md",
                step, row["rollout/logp_gap"], self.config.engine.gap_warning,
            )  # fmt: skip
        with protect():
            row |= self._update(step)
            self.step = step
            records = [_record(r, x) for r, x, _ in everything]
            ended = time.perf_counter()
            row |= {
                "seconds/rollout": rolled - began,
                "seconds/scoring": differentiated - rolled,
                "seconds/update": ended - differentiated,
                "seconds/step": ended - began,
            }
            if self.processes.first:
                if self.config.train.save_rollouts or row["skipped"]:
                    self.folder.save_rollouts(step, records)
                if self.config.train.save_tokens:
                    columns = token_columns(
                        records, [x for _, x, _ in everything], [y for _, _, y in everything], settings
                    )
                    self.folder.save_tokens(step, columns)
                self.folder.add_metrics(row)
        return row

    def _scored(self, rollouts: list[Rollout], keep: float, step: int) -> Scores:
        """Losses and statistics of our rollouts; their gradient, divided by the rollouts of all processes, is
        in `grad`.
        """
        losses: list[RolloutLoss] = []
        scored: list[list[ScoredTurn]] = []
        for parameter in self.student:
            parameter.grad = torch.zeros_like(parameter)
        self.model.train()
        size = self.config.train.micro_batch
        parts = [rollouts[first : first + size] for first in range(0, len(rollouts), size)]
        missing = self.processes.all_max(len(parts)) - len(parts) if self.sharded else 0
        for part in [*parts, *([] for _ in range(missing))]:
            of_part, turns = self._differentiated(part, keep, step)
            losses += of_part
            scored += turns
        if self.sharded:
            sharding.reshard(self.model)
        return losses, scored

    def _differentiated(self, part: list[Rollout], keep: float, step: int) -> Scores:
        """Score one micro-batch and add its gradient, whole or not at all; without memory again with less of
        it at a time.
        """
        while True:
            try:
                return self._attempt(part, keep, step)
            except (MemoryError, RuntimeError) as error:
                if not _no_memory(error):
                    raise
                reason = str(error).splitlines()[0]
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            if not self.sharded and len(part) > 1:
                log.warning(
                    "out of memory in scoring %d rollouts: again in two parts, which changes nothing else",
                    len(part),
                )
                halves = [
                    self._differentiated(half, keep, step)
                    for half in (part[: len(part) // 2], part[len(part) // 2 :])
                ]
                return [x for losses, _ in halves for x in losses], [
                    y for _, scored in halves for y in scored
                ]
            self._use_less(reason)

    def _use_less(self, reason: str) -> None:
        """The next best way to score one rollout in less memory; an error where there is none left."""
        if self.sharded or (self.recomputes and self.row_tokens <= SMALLEST_ROW):
            raise UserError(
                f"out of memory in scoring with rows of {self.row_tokens} tokens: {reason}\n"
                "set train.recompute=true, lower train.row_tokens or the token limits of [rollout], or use a smaller model "
                "(smopd plan tells what fits)"
            )
        if (
            not self.recomputes
        ):  # all rows of a rollout stay in memory until backward: smaller ones alone would not help
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

    def _attempt(self, part: list[Rollout], keep: float, step: int) -> Scores:
        path = self.aligned.path() if self.aligned else FAST
        draw = (self.config.seed, step)
        losses, turns = score(
            self.model, self.renderer, part, self.config.objective, keep, self.row_tokens, path, draw
        )
        loss = (
            torch.stack([x.total for x in losses]).sum() / self.config.train.rollouts
            if losses
            else torch.zeros(())
        )
        loss = self.aligned.anchored(loss) if self.aligned else loss
        if loss.requires_grad:
            found = torch.autograd.grad(loss, self.student, allow_unused=True)
            for parameter, gradient in zip(self.student, found, strict=True):
                if gradient is not None and parameter.grad is not None:
                    parameter.grad += gradient
        return losses, turns

    def roll_out(self, step: int) -> list[Rollout]:
        """Sample our share of this step's conversations with the current student."""
        settings, seed = self.config.objective, self.config.seed
        examples = self.processes.share([self.examples[i] for i in self._drawn(step)])
        full_branch = [rng(seed, "full branch", step, e.id).random() < settings.rho for e in examples]
        exclusive = settings.full_branch == "exclusive"
        sharded_examples = [
            e for e, drawn in zip(examples, full_branch, strict=True) if not (drawn and exclusive)
        ]
        full_examples = [e for e, drawn in zip(examples, full_branch, strict=True) if drawn]
        with self.sampling(step - 1):
            sharded = {
                c.example.id: c
                for c in self.driver.play(sharded_examples, "sharded", (seed, "rollout", step))
            }
            full = {c.example.id: c for c in self.driver.play(full_examples, "full", (seed, "rollout", step))}
        self.engine.sleep()
        verdicts = dict(
            zip(sharded, verify_all([(c.example, c.final_text) for c in sharded.values()]), strict=True)
        )
        return [Rollout(sharded.get(e.id), full.get(e.id), verdicts.get(e.id)) for e in examples]

    def sampling(self, version: int) -> Any:
        """Inside, the engine samples from the student after `version` steps."""
        self.engine.refresh(version, self.folder.adapter_saver(self.model))
        if self.config.engine.kind != "hf":
            return nullcontext()
        if self.sharded:
            return sharding.unsharded(self.model)
        return merged(self.model) if self.config.rollout.merge else nullcontext()

    def _drawn(self, step: int) -> list[int]:
        """Indices of the step's examples: a fresh shuffle every epoch, batches running through it without a
        gap.
        """
        count, batch = len(self.examples), self.config.train.rollouts
        places = range((step - 1) * batch, step * batch)
        self._orders = {e: self._orders.get(e) or self._shuffled(e) for e in {p // count for p in places}}
        return [self._orders[p // count][p % count] for p in places]

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self.examples)))
        rng(self.config.seed, "order", epoch).shuffle(order)
        return order

    def _update(self, step: int) -> dict[str, Any]:
        """Clip, optimizer step, teacher average. A gradient that is zero everywhere or not finite changes
        nothing.
        """
        optim = self.config.optim
        norm = torch.nn.utils.clip_grad_norm_(self.student, optim.grad_clip or float("inf"))
        rate = learning_rate(step, self.config.train.steps, optim)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        finite = bool(torch.isfinite(norm))
        if finite and norm > 0:
            self.optimizer.step()
            update_teacher(self.model, self.config.teacher.decay)
        elif finite:
            log.warning(
                "step %d: no reply gave a gradient (all empty, or all capped); the step changed nothing", step
            )
        else:
            log.warning("step %d: the gradient is not finite; the step changed nothing", step)
        self.optimizer.zero_grad(set_to_none=True)
        return {
            "grad_norm": norm.item() if finite else None,
            "lr": rate,
            "skipped": int(not finite),
            "empty": int(norm == 0),
        }

    def _check_skipped(self) -> None:
        """Stop where one step after the other has no finite gradient: more of the same would not mend it."""
        most = self.config.train.max_skipped
        rows = self.processes.broadcast(self.folder.metrics()[-most:] if self.processes.first else None) or []
        if len(rows) == most and all(row["skipped"] for row in rows):
            self.save()
            raise UserError(
                f"{most} steps in a row had no finite gradient, the last of them step {self.step}; their conversations, with "
                f"their losses, are in {self.folder.path / 'rollouts'}. Lower optim.lr, set model.dtype to float32, or raise "
                "train.max_skipped to go on"
            )


SMALLEST_ROW = 64  # packed tokens


def check_objective(config: Config) -> None:
    """A UserError for a setting that another one makes idle."""
    objective = config.objective
    if objective.clip_mode == "scale" and objective.clip_level == "vocab":
        raise UserError(
            "objective.clip_mode: scale is for caps of a whole position; set objective.clip_level=position"
        )
    if objective.keep == 1 and (objective.ranking != "entropy" or objective.denominator != "kept"):
        raise UserError(
            "objective.ranking, objective.denominator: there is no mask with objective.keep=1; lower it, e.g. to 0.8"
        )


def _no_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out; on a CPU torch has no class of its own for that."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in str(error)


def learning_rate(step: int, total: int, optim: Optim) -> float:
    """The rate at `step` (from 1): linear warm-up, then constant or falling to zero at the end."""
    if step <= optim.warmup_steps:
        return optim.lr * step / optim.warmup_steps
    progress = (step - optim.warmup_steps) / max(1, total - optim.warmup_steps)
    factor = {"constant": 1.0, "linear": 1 - progress, "cosine": 0.5 * (1 + cos(pi * progress))}[
        optim.schedule
    ]
    return optim.lr * factor


def _plain(value: Any) -> Any:
    """The same without graphs and devices, to be sent to another process or kept for the metrics."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(inner) for inner in value)
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{name: _plain(getattr(value, name)) for name in value.__dataclass_fields__})
    return value


def _record(rollout: Rollout, loss: RolloutLoss) -> dict[str, Any]:
    shown = rollout.sharded or rollout.full
    assert shown is not None
    verdict = rollout.verdict
    return {
        "id": shown.example.id,
        "sharded": rollout.sharded.to_json()["turns"] if rollout.sharded else None,
        "full": rollout.full.to_json()["turns"] if rollout.full else None,
        "correct": verdict.correct if verdict else None,
        "extracted": verdict.extracted if verdict else None,
        "expected": dict(shown.example.answer),
        "loss": loss.total.item() if torch.isfinite(loss.total) else None,
    }

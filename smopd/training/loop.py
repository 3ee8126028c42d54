"""The training loop: roll out, score, step, average. It runs any method, because a method is only settings.

Every random choice is derived from (seed, purpose, step, example, turn), so a run that was stopped and started again repeats
the uninterrupted one. Single process; several processes are refused, not silently wrong.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import cos, pi
from typing import Any

import torch
from accelerate import Accelerator
from peft import PeftModel

from smopd.chat import Renderer
from smopd.config import Config, Optim
from smopd.errors import EngineLost, UserError
from smopd.evaluation.prepare import prepared_examples
from smopd.evaluation.verifiers import verify_all
from smopd.models import load_model, resolve_adapter
from smopd.objective import masked
from smopd.rollout import Driver, Sampling
from smopd.rollout.factory import make_engine
from smopd.scoring.passes import check_head
from smopd.seeds import derive, rng
from smopd.training.adapters import attach, merged, student_parameters, update_teacher
from smopd.training.metrics import step_metrics
from smopd.training.run_folder import RunFolder
from smopd.training.scoring_step import Rollout, score

log = logging.getLogger("smopd")
Report = Callable[[dict[str, Any]], None]


class Stopped(Exception):
    """Ctrl-C: everything up to `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class Trainer:
    """One run: model, data, engine, optimizer and folder, taken one step at a time."""

    def __init__(self, config: Config, folder: RunFolder) -> None:
        self.config, self.folder = config, folder
        self.accelerator = Accelerator()
        if self.accelerator.num_processes > 1:
            raise UserError("smopd train runs in one process; start it without a launcher")
        self.examples = prepared_examples(config, "train")
        chat = load_model(config, self.accelerator.device)
        self.renderer: Renderer = chat.renderer
        adapter = str(resolve_adapter(config.model.adapter)) if config.model.adapter else ""
        self.model: PeftModel = attach(chat.model, config.lora, config.seed, adapter)
        check_head(self.model, self.renderer.ids([{"role": "user", "content": "Hello."}]))
        if config.train.recompute:
            chat.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.student = list(student_parameters(self.model).values())
        self.optimizer = torch.optim.AdamW(
            self.student,
            lr=config.optim.lr,
            betas=(config.optim.beta1, config.optim.beta2),
            eps=config.optim.eps,
            weight_decay=config.optim.weight_decay,
        )
        sampling = Sampling(config.rollout.temperature, config.rollout.answer_tokens, config.rollout.top_p, config.rollout.top_k)
        rank = max(adapter.r for adapter in self.model.peft_config.values())  # type: ignore[attr-defined]
        self.engine = make_engine(config, self.renderer, config.rollout.batch, folder.path / "adapters", self.model, rank)
        self.driver = Driver(self.engine, self.renderer, sampling, config.rollout.middle_tokens, config.chat.history)
        folder.begin()
        self.step = folder.restore(self.model, self.optimizer)
        folder.cut_metrics(self.step)
        self._orders: dict[int, list[int]] = {}

    def train(self, report: Report | None = None) -> None:
        """Run to the last step. Raises `Stopped` after Ctrl-C, with everything saved."""
        every = self.config.train.checkpoint_every
        with _interruptible() as protect:
            try:
                while self.step < self.config.train.steps:
                    row = self.take_step(self.step + 1, protect)
                    if self.step % every == 0 or self.step == self.config.train.steps:
                        with protect():
                            self.save()
                    if report:
                        report(row)
            except (KeyboardInterrupt, EngineLost) as reason:
                # The weights are those after the last whole step: a half-done one has changed nothing yet.
                with protect():
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
        self.folder.save_checkpoint(self.step, self.model, self.optimizer, self.config.train.keep_checkpoints)

    def take_step(self, step: int, protect: Callable[[], Any]) -> dict[str, Any]:
        """One update; the row of metrics it leaves behind. `protect()` keeps Ctrl-C from parting the weights from their row."""
        began = time.perf_counter()
        settings = self.config.objective
        torch.manual_seed(derive(self.config.seed, "step", step))  # for dropout, where a recipe has some
        usage = replace(self.engine.usage)
        rollouts = self.roll_out(step)
        rolled = time.perf_counter()
        keep = settings.keep if masked(step, self.config.train.steps, settings.mask_after) else 1.0
        losses, scored = [], []
        size = self.config.train.micro_batch
        self.model.train()
        for first in range(0, len(rollouts), size):
            part, turns = score(
                self.model, self.renderer, rollouts[first : first + size], settings, keep, self.config.train.row_tokens
            )
            loss = torch.stack([p.total for p in part]).sum() / len(rollouts)
            if loss.requires_grad:
                self.accelerator.backward(loss)
            losses += part
            scored += turns
        differentiated = time.perf_counter()
        row = {
            "step": step,
            **step_metrics(rollouts, losses, scored, keep),
            "rollout/reused": self.engine.usage.share_since(usage),
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
            if self.config.train.save_rollouts:
                self.folder.save_rollouts(step, [_record(r) for r in rollouts])
            ended = time.perf_counter()
            row |= {
                "seconds/rollout": rolled - began,
                "seconds/scoring": differentiated - rolled,
                "seconds/update": ended - differentiated,
                "seconds/step": ended - began,
            }
            self.folder.add_metrics(row)
        return row

    def roll_out(self, step: int) -> list[Rollout]:
        """Sample this step's conversations with the current student."""
        settings, seed = self.config.objective, self.config.seed
        examples = [self.examples[i] for i in self._drawn(step)]
        full_branch = [rng(seed, "full branch", step, e.id).random() < settings.rho for e in examples]
        exclusive = settings.full_branch == "exclusive"
        sharded_examples = [e for e, drawn in zip(examples, full_branch, strict=True) if not (drawn and exclusive)]
        full_examples = [e for e, drawn in zip(examples, full_branch, strict=True) if drawn]
        self.engine.refresh(step - 1, self.folder.adapter_saver(self.model))
        fold = self.config.rollout.merge and self.config.engine.kind == "hf"
        with merged(self.model) if fold else nullcontext():
            sharded = {c.example.id: c for c in self.driver.play(sharded_examples, "sharded", (seed, "rollout", step))}
            full = {c.example.id: c for c in self.driver.play(full_examples, "full", (seed, "rollout", step))}
        self.engine.sleep()
        verdicts = dict(zip(sharded, verify_all([(c.example, c.final_text) for c in sharded.values()]), strict=True))
        return [Rollout(sharded.get(e.id), full.get(e.id), verdicts.get(e.id)) for e in examples]

    def _drawn(self, step: int) -> list[int]:
        """Indices of the step's examples: a fresh shuffle every epoch, batches running through it without a gap."""
        count, batch = len(self.examples), self.config.train.rollouts
        places = range((step - 1) * batch, step * batch)
        self._orders = {e: self._orders.get(e) or self._shuffled(e) for e in {p // count for p in places}}
        return [self._orders[p // count][p % count] for p in places]

    def _shuffled(self, epoch: int) -> list[int]:
        order = list(range(len(self.examples)))
        rng(self.config.seed, "order", epoch).shuffle(order)
        return order

    def _update(self, step: int) -> dict[str, Any]:
        """Clip, optimizer step, teacher average. A gradient that is not finite changes nothing and is counted."""
        optim = self.config.optim
        norm = torch.nn.utils.clip_grad_norm_(self.student, optim.grad_clip or float("inf"))
        rate = learning_rate(step, self.config.train.steps, optim)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        finite = bool(torch.isfinite(norm))
        if finite:
            self.optimizer.step()
            update_teacher(self.model, self.config.teacher.decay)
        else:
            log.warning("step %d: the gradient is not finite; the step changed nothing", step)
        self.optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": norm.item() if finite else None, "lr": rate, "skipped": int(not finite)}


def learning_rate(step: int, total: int, optim: Optim) -> float:
    """The rate at `step` (from 1): linear warm-up, then constant or falling to zero at the end."""
    if step <= optim.warmup_steps:
        return optim.lr * step / optim.warmup_steps
    progress = (step - optim.warmup_steps) / max(1, total - optim.warmup_steps)
    factor = {"constant": 1.0, "linear": 1 - progress, "cosine": 0.5 * (1 + cos(pi * progress))}[optim.schedule]
    return optim.lr * factor


def _record(rollout: Rollout) -> dict[str, Any]:
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
    }


@contextmanager
def _interruptible() -> Iterator[Callable[[], Any]]:
    """Ctrl-C raises KeyboardInterrupt at once, except inside `with protect():`, where it waits for the end of the block."""
    pending, depth = False, 0

    def handler(number: int, frame: Any) -> None:
        nonlocal pending
        if depth:
            pending = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def protect() -> Iterator[None]:
        nonlocal depth, pending
        depth += 1
        try:
            yield
        finally:
            depth -= 1
        if pending and not depth:
            pending = False
            raise KeyboardInterrupt

    try:
        old = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller's handlers stay
        old = {}
    try:
        yield protect
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)

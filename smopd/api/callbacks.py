"""Call transformers' `TrainerCallback`s from smopd's training loop.

Called: on_train_begin, on_step_begin, on_step_end, on_log, on_evaluate, on_save, on_train_end. Honoured:
should_training_stop, should_save, and should_evaluate if the run evaluates (eval_steps). Not called, because
the loop has no such points: on_epoch_*, on_substep_end, on_*optimizer_step, on_predict, on_prediction_step.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transformers import TrainerControl, TrainerState
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from smopd.training.hooks import Hooks

if TYPE_CHECKING:
    from smopd.api.trainer import SMOPDConfig
    from smopd.training.loop import Trainer


class CallbackHooks(Hooks):
    def __init__(self, config: "SMOPDConfig", args: Any, callbacks: Sequence[Any]) -> None:
        self.given, self.args = config, args
        self.state, self.control = TrainerState(log_history=[]), TrainerControl()
        self.handler = CallbackHandler([DefaultFlowCallback, *callbacks], None, None, None, None)
        self._per_epoch = 1.0

    def begin(self, trainer: "Trainer") -> None:
        config, state, handler = trainer.config, self.state, self.handler
        self.args = self.given.for_callbacks(str(trainer.folder.path), config)
        handler.model, handler.optimizer = trainer.model, trainer.optimizer
        handler.processing_class = trainer.renderer.tokenizer
        self._per_epoch = config.train.rollouts / len(trainer.player.examples)
        state.max_steps, state.global_step = config.train.steps, trainer.step
        state.epoch = trainer.step * self._per_epoch
        state.logging_steps, state.save_steps = self.given.logging_steps, config.train.checkpoint_every
        state.eval_steps = config.train.eval_every or state.eval_steps
        state.is_world_process_zero = state.is_local_process_zero = trainer.processes.first
        state.log_history = [as_logs(r, r["step"] * self._per_epoch) for r in trainer.folder.metrics()]
        self._ask(handler.on_train_begin)

    def step_begin(self, step: int) -> None:
        self._ask(self.handler.on_step_begin)

    def step_end(self, row: dict[str, Any]) -> None:
        self.state.global_step, self.state.epoch = row["step"], row["step"] * self._per_epoch
        self._ask(self.handler.on_step_end)
        if self.control.should_log:
            self.log(as_logs(row, self.state.epoch))

    def saved(self, step: int) -> None:
        self._ask(self.handler.on_save)

    def evaluated(self, step: int, accuracy: dict[str, float]) -> None:
        self.report({f"eval_{view}": value for view, value in accuracy.items()})

    def report(self, metrics: dict[str, float]) -> None:
        self.log({**metrics, "step": self.state.global_step, "epoch": self.state.epoch})
        self._ask(self.handler.on_evaluate, metrics)
        name = self.given.metric_for_best_model or ""
        value = metrics.get(f"eval_{name.removeprefix('eval_')}")
        if value is not None and (self.state.best_metric is None or value > self.state.best_metric):
            self.state.best_metric, self.state.best_global_step = value, self.state.global_step

    def log(self, logs: dict[str, Any]) -> None:
        self.state.log_history.append(logs)
        self._ask(self.handler.on_log, logs)

    def end(self) -> None:
        self._ask(self.handler.on_train_end)

    def _ask(self, event: Callable[..., TrainerControl], *more: Any) -> None:
        self.control = event(self.args, self.state, self.control, *more)
        self.stop, self.save = self.control.should_training_stop, self.control.should_save
        self.evaluate = self.control.should_evaluate


def as_logs(row: dict[str, Any], epoch: float) -> dict[str, Any]:
    """A step's numeric metrics under the names that callbacks know: lr as learning_rate."""
    numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
    renamed = {"learning_rate" if key == "lr" else key: value for key, value in numbers.items()}
    return {**renamed, "epoch": epoch}

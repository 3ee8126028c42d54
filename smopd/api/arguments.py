"""`SMOPDConfig`: the settings of a run under the names that transformers and TRL have for them.

Every field stands for one setting of docs/configuration.md (`MAPPING`), and a field that is left at None for
what the recipe or the default says; everything else is set by its own name in `overrides`. There is no
field that is taken and passed over.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smopd.errors import UserError
from smopd.trainer_names import MAPPING, explain_name

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from smopd.methods import Method


@dataclass(kw_only=True)
class SMOPDConfig:
    """What `SMOPDTrainer` takes as `args`; docs/python.md has the table."""

    output_dir: str | None = None
    method: "str | Method | None" = None
    max_steps: int | None = None
    learning_rate: float | None = None
    lr_scheduler_type: str | None = None
    warmup_steps: int | None = None
    weight_decay: float | None = None
    adam_beta1: float | None = None
    adam_beta2: float | None = None
    adam_epsilon: float | None = None
    max_grad_norm: float | None = None
    seed: int | None = None
    per_device_train_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    gradient_checkpointing: bool | None = None
    save_steps: int | None = None
    save_total_limit: int | None = None
    eval_steps: int | None = None
    logging_steps: int = 1
    report_to: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_completion_length: int | None = None
    dtype: str | None = None
    metric_for_best_model: str | None = None  # for callbacks such as EarlyStoppingCallback: sharded or full
    hub_model_id: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __new__(cls, **given: Any) -> "SMOPDConfig":
        """Point from a name that is no field to what it is called here; the rest is `__init__`'s."""
        for name in sorted(set(given) - set(cls.__dataclass_fields__)):
            if words := explain_name(name, given[name], as_field):
                raise UserError(words)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.logging_steps < 1:
            raise UserError(f"logging_steps = {self.logging_steps}: expected a whole number of at least 1")

    def settings(self) -> dict[str, Any]:
        """The settings by their own names."""
        found = {MAPPING[name]: value for name in MAPPING if (value := getattr(self, name)) is not None}
        if isinstance(found.get("train.trackers"), str):
            found["train.trackers"] = [t for t in [self.report_to] if t != "none"]
        size, times = self.per_device_train_batch_size, self.gradient_accumulation_steps
        if size is not None or times is not None:
            processes = int(os.environ.get("WORLD_SIZE") or 1)
            found["train.rollouts"] = (size or 1) * (times or 1) * processes
        clash = sorted(set(found) & set(self.overrides))
        if clash:
            name = next((n for n, key in MAPPING.items() if key == clash[0]), "per_device_train_batch_size")
            raise UserError(f"overrides: {clash[0]} is set by {name} too; give one of them")
        return found | dict(self.overrides)

    def for_callbacks(self, output_dir: str, config: Any) -> "TrainingArguments":
        """The same as transformers' TrainingArguments, which callbacks expect."""
        from transformers import TrainingArguments

        from smopd.devices import default_device

        train, optim = config.train, config.optim
        return TrainingArguments(
            output_dir=output_dir,
            max_steps=train.steps,
            learning_rate=optim.lr,
            lr_scheduler_type=optim.schedule,
            warmup_steps=optim.warmup_steps,
            weight_decay=optim.weight_decay,
            adam_beta1=optim.beta1,
            adam_beta2=optim.beta2,
            adam_epsilon=optim.eps,
            max_grad_norm=optim.grad_clip,
            per_device_train_batch_size=train.micro_batch,
            gradient_accumulation_steps=max(1, train.rollouts // train.micro_batch),
            seed=config.seed,
            logging_steps=self.logging_steps,
            save_strategy="steps",
            save_steps=train.checkpoint_every,
            eval_strategy="steps" if train.eval_every else "no",
            eval_steps=train.eval_every or None,
            metric_for_best_model=self.metric_for_best_model,
            greater_is_better=True if self.metric_for_best_model else None,
            report_to="none",
            # Without it transformers would give up accelerate's process group on a machine without a GPU.
            use_cpu=default_device().type == "cpu",
        )


def as_field(key: str, value: Any) -> str:
    """A setting as `SMOPDConfig` takes it."""
    field = next((name for name, setting in MAPPING.items() if setting == key), None)
    return f"{field}={value!r}" if field else f"overrides={{{key!r}: {value!r}}}"

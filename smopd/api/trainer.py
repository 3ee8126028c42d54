"""`SMOPDTrainer` and `SMOPDConfig`: the same run under the names that transformers and TRL use.

They add no training loop. Every field of SMOPDConfig stands for one setting of docs/configuration.md
(`MAPPING`); a field left at None keeps the value of the recipe or the default. All other settings go into
`overrides` under their own names. No field is silently ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from huggingface_hub import HfApi
from peft import LoraConfig, PeftModel
from transformers import TrainingArguments

from smopd.api.callbacks import CallbackHooks
from smopd.api.evaluation import Evaluation, evaluate
from smopd.api.training import TrainingCall, run_training
from smopd.config_io import flatten
from smopd.data.reading import rereadable
from smopd.devices import default_device
from smopd.errors import UserError
from smopd.files import explain_os_errors, write_text
from smopd.machine import process_count
from smopd.methods import Method
from smopd.models import load_renderer
from smopd.models.adapter_files import copy_adapter
from smopd.runs import Run, is_run
from smopd.runs.model_card import model_card, public
from smopd.runs.push import push
from smopd.trainer_names import MAPPING, explain_name
from smopd.training.processes import Processes

T = TypeVar("T")
FIELDS = {setting: name for name, setting in MAPPING.items()}


@dataclass(kw_only=True)
class SMOPDConfig:
    """The `args` of `SMOPDTrainer`; docs/python.md has a table of the fields."""

    output_dir: str | None = None
    method: str | Method | None = None
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

    def __new__(cls, **arguments: Any) -> "SMOPDConfig":
        """Explain what an unknown argument, such as one of TRL's, is called here."""
        for name in sorted(set(arguments) - set(cls.__dataclass_fields__)):
            if explained := explain_name(name, arguments[name], _as_field):
                raise UserError(explained)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if self.logging_steps < 1:
            raise UserError(f"logging_steps = {self.logging_steps}: expected a whole number of at least 1")

    def settings(self) -> dict[str, Any]:
        settings = {MAPPING[name]: value for name in MAPPING if (value := getattr(self, name)) is not None}
        if isinstance(self.report_to, str):
            settings["train.trackers"] = [] if self.report_to == "none" else [self.report_to]
        size, times = self.per_device_train_batch_size, self.gradient_accumulation_steps
        if size is not None or times is not None:
            settings["train.rollouts"] = (size or 1) * (times or 1) * process_count()
        if clash := sorted(set(settings) & set(self.overrides)):
            name = FIELDS.get(clash[0], "per_device_train_batch_size")
            raise UserError(f"overrides: {clash[0]} is set by {name} too; give one of them")
        return settings | dict(self.overrides)

    def for_callbacks(self, output_dir: str, config: Any) -> TrainingArguments:
        """The equivalent TrainingArguments of transformers, which callbacks expect."""
        train, values = config.train, flatten(config.model_dump())
        shared = TrainingArguments.__dataclass_fields__.keys() & MAPPING
        arguments = {name: values[MAPPING[name]] for name in shared} | {
            "output_dir": output_dir,
            "gradient_accumulation_steps": max(1, train.rollouts // train.micro_batch),
            "logging_steps": self.logging_steps,
            "save_strategy": "steps",
            "eval_strategy": "steps" if train.eval_every else "no",
            "eval_steps": train.eval_every or None,
            "metric_for_best_model": self.metric_for_best_model,
            "greater_is_better": True if self.metric_for_best_model else None,
            "report_to": "none",
        }
        # Without use_cpu transformers would drop accelerate's process group on a machine without a GPU.
        return TrainingArguments(**arguments, use_cpu=default_device().type == "cpu")


def _as_field(key: str, value: Any) -> str:
    return f"{FIELDS[key]}={value!r}" if key in FIELDS else f"overrides={{{key!r}: {value!r}}}"


class SMOPDTrainer:
    """Trains a chat model by multi-turn on-policy self-distillation.

    `model`: what `smopd.train` takes; a transformers model comes with its tokenizer as `processing_class`.
    `train_dataset`, `eval_dataset`: rows with the columns of docs/python.md. `verifier`: a function
    (answer, reply) -> True, False or None. `callbacks`: transformers' TrainerCallbacks. The run folder is
    args.output_dir; if it has checkpoints, training resumes from the newest.
    """

    def __init__(
        self,
        model: Any,
        args: SMOPDConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        callbacks: Sequence[Any] = (),
        verifier: Any = None,
        peft_config: LoraConfig | None = None,
        **more: Any,
    ) -> None:
        for name, value in more.items():
            known = explain_name(name, value, lambda *pair: f"args=smopd.SMOPDConfig({_as_field(*pair)})")
            raise UserError(known or f"{name}: SMOPDTrainer has no such argument; settings go into args=")
        self.args = args or SMOPDConfig()
        self.train_dataset = rereadable(train_dataset, "train_dataset")
        self.eval_dataset, self.verifier = rereadable(eval_dataset, "eval_dataset"), verifier
        self.processing_class = processing_class
        self.model: PeftModel | None = None  # once it trains: the base with the student's adapter
        self.run: Run | None = None  # once it is trained
        self._model, self._lora = model, _lora(peft_config)
        config = self._call().config(trial=True)  # report mistakes in the settings now
        arguments = self.args.for_callbacks(self.args.output_dir or "runs", config)
        self._hooks = CallbackHooks(self.args, arguments, callbacks)
        self.state = self._hooks.state

    @property
    def log_history(self) -> list[dict[str, Any]]:
        """The log, a dict per entry, as in transformers."""
        return self.state.log_history

    def add_callback(self, callback: Any) -> None:
        """Add a TrainerCallback, or its class."""
        self._hooks.handler.add_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Remove a TrainerCallback, or the first of its class."""
        self._hooks.handler.remove_callback(callback)

    def train(self, resume_from_checkpoint: bool | None = None) -> Run:
        """Train to the end, resuming an existing run; with False, a folder that holds a run is refused."""
        call = self._call()
        out = call.folder(call.config(trial=True))
        if resume_from_checkpoint is False and is_run(out):
            raise UserError(f"{out}: holds a run already, and resume_from_checkpoint is False")
        if resume_from_checkpoint and not is_run(out):
            raise UserError(f"{out}: holds no run that could be resumed")
        rows = {"train": self.train_dataset, "eval": self.eval_dataset}
        self.run = run_training(call, rows, self.verifier, self._hooks, progress=False)
        self.model = self._hooks.handler.model
        return self.run

    def evaluate(
        self, eval_dataset: Any = None, metric_key_prefix: str = "eval", **how: Any
    ) -> dict[str, float]:
        """Accuracy by view with its interval, of the trained run or, before training, of the model. The keys
        have a prefix as in transformers: eval_sharded, eval_sharded_low, eval_sharded_high.
        """
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        metrics: dict[str, float] = {}
        for view, summary in self.evaluation(rows, **how).items():
            for end, key in (("", "accuracy"), ("_low", "low"), ("_high", "high")):
                metrics[f"{metric_key_prefix}_{view}{end}"] = summary[key]
        self._hooks.report(metrics)
        return metrics

    def evaluation(self, examples: Any = None, **how: Any) -> Evaluation:
        """Like `evaluate`, but return the `Evaluation` with its conversations."""
        if self.run:
            return evaluate(self.run, examples, progress=False, **how)
        call = self._call()
        of_training = ("objective.", "train.", "optim.", "rollout.", "lora.", "teacher.")
        settings = {k: v for k, v in call.settings.items() if not k.startswith(of_training)}
        settings |= how.pop("settings", {})
        how |= {"tokenizer": self.processing_class if call.inputs.model else None, "settings": settings}
        return evaluate(self._model, examples, verifier=self.verifier, progress=False, **how)

    def save_model(self, output_dir: str | Path | None = None) -> Path:
        """Write the trained adapter in PEFT format, with tokenizer and model card; return the folder."""
        return self._on_first("save_model", lambda run: _save(run, Path(output_dir or run.path)))

    def push_to_hub(
        self, repo_id: str | None = None, *, private: bool = True, token: str | None = None
    ) -> str:
        """Upload what `save_model` writes to the Hugging Face hub; return the commit's URL."""

        def save_and_push(run: Run) -> str:
            name = repo_id or self.args.hub_model_id or run.path.name
            with TemporaryDirectory(prefix="smopd-") as folder:
                api = HfApi(token=token, library_name="smopd")
                saved = _save(run, Path(folder), public(run.config.model.path))
                return push(api, name, saved, private, f"push_to_hub: {name} was not uploaded")[1]

        return self._on_first("push_to_hub", save_and_push)

    def _on_first(self, verb: str, work: Callable[[Run], T]) -> T:
        if (run := self.run) is None:
            raise UserError(f"{verb}: nothing is trained yet; call train() first; it also resumes a run")
        return Processes().on_first(lambda: work(run))

    def _call(self) -> TrainingCall:
        settings = {**self.args.settings(), **self._lora}
        named = isinstance(self._model, str | Path)
        if named and (passed := self.processing_class) is not None:  # the run would not keep another one
            call = TrainingCall(self._model, None, None, settings, None)
            ours = load_renderer(call.config(trial=True)).tokenizer
            if ours.chat_template != passed.chat_template or ours.get_vocab() != passed.get_vocab():
                advice = "load the model too and pass both, so that the run keeps them"
                raise UserError(f"processing_class: is not the tokenizer of {self._model}; {advice}")
        tokenizer = None if named else self.processing_class
        return TrainingCall(self._model, self.args.method, tokenizer, settings, self.args.output_dir)


def _save(run: Run, out: Path, base: str = "") -> Path:
    adapter, config = run.adapter, run.config
    with explain_os_errors(f"{out}: the model cannot be written"):
        copy_adapter(adapter, out, base=base)
        load_renderer(config).tokenizer.save_pretrained(out)
        write_text(out / "README.md", model_card(run.path.name, config, adapter, run.path, dtype=""))
    return out


def _lora(config: LoraConfig | None) -> dict[str, Any]:
    """The settings of a peft_config; a UserError if it sets more than rank, alpha, dropout and targets."""
    if config is None:
        return {}
    ours = {"r": "lora.r", "lora_alpha": "lora.alpha", "lora_dropout": "lora.dropout"}
    passed = {"target_modules", "task_type", "peft_type", "inference_mode", "base_model_name_or_path", *ours}
    usual, requested = LoraConfig().to_dict(), config.to_dict()
    more = [k for k, v in requested.items() if k not in passed and k in usual and v != usual[k]]
    if more or not isinstance(config, LoraConfig):
        only = "smopd trains plain LoRA adapters"
        raise UserError(f"peft_config: {only}; it has no {', '.join(more) or type(config)}")
    settings = {key: requested[name] for name, key in ours.items()}
    if targets := config.target_modules:
        settings["lora.targets"] = [targets] if isinstance(targets, str) else sorted(targets)
    return settings

"""`SMOPDTrainer`: the same run by the names that transformers and TRL have. No loop of its own."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smopd.api.arguments import SMOPDConfig as SMOPDConfig
from smopd.api.arguments import as_field
from smopd.api.evaluation import Evaluation, evaluate
from smopd.api.training import TrainingCall, run_training
from smopd.data.columns import rereadable
from smopd.errors import UserError
from smopd.runs.layout import is_run
from smopd.runs.run import Run
from smopd.trainer_names import explain_name

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel


class SMOPDTrainer:
    """Trains a chat model by multi-turn on-policy self-distillation.

    `model`: what `smopd.train` takes; a transformers model comes with its tokenizer as `processing_class`.
    `train_dataset`, `eval_dataset`: rows with the columns of docs/python.md. `verifier`: a function
    (answer, reply) -> True, False or None. `callbacks`: transformers' TrainerCallbacks. The run folder is
    args.output_dir; training into a folder with checkpoints goes on from the newest.
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
        peft_config: "LoraConfig | None" = None,
        **more: Any,
    ) -> None:
        for name, value in more.items():
            words = explain_name(name, value, lambda *pair: f"args=smopd.SMOPDConfig({as_field(*pair)})")
            raise UserError(words or f"{name}: SMOPDTrainer has no such argument; settings go into args=")
        from transformers import TrainerState

        from smopd.api.callbacks import CallbackHooks

        self.args = args or SMOPDConfig()
        self.train_dataset = rereadable(train_dataset, "train_dataset")
        self.eval_dataset, self.verifier = rereadable(eval_dataset, "eval_dataset"), verifier
        self.processing_class = processing_class
        self.state: TrainerState = TrainerState(log_history=[])
        self.model: PeftModel | None = None  # once it trains: the base with the student's adapter
        self.run: Run | None = None  # once it is trained
        self._model, self._lora = model, _lora(peft_config)
        self._hooks = CallbackHooks(self.args, callbacks, self.state)
        config = self._call().config(trial=True)  # a mistake in the settings is told at once
        self._hooks.args = self.args.for_callbacks(self.args.output_dir or "runs", config)

    @property
    def log_history(self) -> list[dict[str, Any]]:
        """What was logged, a dict an entry, as in transformers."""
        return self.state.log_history

    def add_callback(self, callback: Any) -> None:
        """Add a TrainerCallback, or its class."""
        self._hooks.handler.add_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Remove a TrainerCallback, or the first of its class."""
        self._hooks.handler.remove_callback(callback)

    def train(self, resume_from_checkpoint: bool | None = None) -> Run:
        """Train to the end. A run with checkpoints goes on; False: such a folder is refused instead."""
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
        """Accuracy by view with its interval: of the trained run, or of the model where none is trained yet.

        `eval_PREFIX`... as in transformers: eval_sharded, eval_sharded_low, eval_sharded_high.
        """
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        found = self.evaluation(rows, **how)
        metrics: dict[str, float] = {}
        for view, summary in found.items():
            name = f"{metric_key_prefix}_{view}"
            metrics |= {
                name: summary["accuracy"],
                f"{name}_low": summary["low"],
                f"{name}_high": summary["high"],
            }
        self._hooks.report(metrics)
        return metrics

    def evaluation(self, examples: Any = None, **how: Any) -> Evaluation:
        """The same with its conversations: `smopd.evaluate`."""
        if self.run:
            return evaluate(self.run, examples, progress=False, **how)
        call = self._call()
        of_training = ("objective.", "train.", "optim.", "rollout.", "lora.", "teacher.")
        settings = {k: v for k, v in call.settings.items() if not k.startswith(of_training)}
        settings |= how.pop("settings", {})
        tokenizer = self.processing_class if call.inputs.model else None
        return evaluate(self._model, examples, verifier=self.verifier, tokenizer=tokenizer,
                        settings=settings, progress=False, **how)  # fmt: skip

    def save_model(self, output_dir: str | Path | None = None) -> Path:
        """Write the trained adapter, in PEFT's format, with tokenizer and model card."""
        from smopd.training.processes import Processes

        run = self._trained("save_model")
        return Processes().on_first(lambda: self._save(run, Path(output_dir or run.path)))

    def _save(self, run: Run, out: Path) -> Path:
        from smopd.models import load_renderer
        from smopd.runs.model_card import model_card

        adapter, config = run.adapter, run.config
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name in ("adapter_config.json", "adapter_model.safetensors"):
                shutil.copyfile(adapter / name, out / name)
            load_renderer(config).tokenizer.save_pretrained(out)
            card = model_card(run.path.name, config, adapter, run.path, dtype="")
            (out / "README.md").write_text(card, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{out}: the model cannot be written: {error.strerror or error}") from None
        return out

    def push_to_hub(
        self, repo_id: str | None = None, *, private: bool = True, token: str | None = None
    ) -> str:
        """Upload what `save_model` writes to the Hugging Face hub; the commit's address."""
        from smopd.training.processes import Processes

        return Processes().on_first(lambda: self._push(repo_id, private, token))

    def _push(self, repo_id: str | None, private: bool, token: str | None) -> str:
        from tempfile import TemporaryDirectory

        from huggingface_hub import HfApi

        run = self._trained("push_to_hub")
        name = repo_id or self.args.hub_model_id or run.path.name
        with TemporaryDirectory(prefix="smopd-") as folder:
            self._save(run, Path(folder))
            try:
                api = HfApi(token=token)
                made = api.create_repo(name, private=private, exist_ok=True)
                message = "Trained with smopd"
                commit = api.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message=message)
            except Exception as error:  # whatever the hub or the way there may answer with
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                advice = "log in with `hf auth login`, or pass token="
                raise UserError(f"push_to_hub: {name} was not uploaded: {first}; {advice}") from None
        return str(commit.commit_url)

    def _trained(self, verb: str) -> Run:
        if self.run is None:
            raise UserError(
                f"{verb}: nothing is trained yet; call train() first, which goes on with a run too"
            )
        return self.run

    def _call(self) -> TrainingCall:
        settings = {**self.args.settings(), **self._lora}
        named = isinstance(self._model, str | Path)
        if named and self.processing_class is not None:
            self._same_tokenizer(TrainingCall(self._model, None, None, settings, None))
        tokenizer = None if named else self.processing_class
        return TrainingCall(self._model, self.args.method, tokenizer, settings, self.args.output_dir)

    def _same_tokenizer(self, call: TrainingCall) -> None:
        """A model that is named comes with its tokenizer; another one would not be kept with the run."""
        from smopd.models import load_renderer

        own, given = load_renderer(call.config(trial=True)).tokenizer, self.processing_class
        if own.chat_template != given.chat_template or own.get_vocab() != given.get_vocab():
            advice = "load the model too and pass both, so that the run keeps them"
            raise UserError(f"processing_class: is not the tokenizer of {self._model}; {advice}")


def _lora(config: "LoraConfig | None") -> dict[str, Any]:
    """The settings of a peft_config; a UserError where it asks for more than rank, scale and layers."""
    if config is None:
        return {}
    from peft import LoraConfig

    ours = {"r": "lora.r", "lora_alpha": "lora.alpha", "lora_dropout": "lora.dropout"}
    passed = {"target_modules", "task_type", "peft_type", "inference_mode", "base_model_name_or_path", *ours}
    usual, given = LoraConfig().to_dict(), config.to_dict()
    more = [k for k, v in given.items() if k not in passed and k in usual and v != usual[k]]
    if more or not isinstance(config, LoraConfig):
        raise UserError(
            f"peft_config: smopd trains plain LoRA adapters; it has no {', '.join(more) or type(config)}"
        )
    found = {key: given[name] for name, key in ours.items()}
    if targets := config.target_modules:
        found["lora.targets"] = [targets] if isinstance(targets, str) else sorted(targets)
    return found

"""Names of settings in transformers, TRL and PEFT, and what smopd calls them."""

from collections.abc import Callable
from typing import Any

# Fields of SMOPDConfig.
MAPPING = {
    "max_steps": "train.steps", "learning_rate": "optim.lr", "lr_scheduler_type": "optim.schedule",
    "warmup_steps": "optim.warmup_steps", "weight_decay": "optim.weight_decay", "adam_beta1": "optim.beta1",
    "adam_beta2": "optim.beta2", "adam_epsilon": "optim.eps", "max_grad_norm": "optim.grad_clip",
    "seed": "seed", "per_device_train_batch_size": "train.micro_batch",
    "gradient_checkpointing": "train.recompute", "save_steps": "train.checkpoint_every",
    "save_total_limit": "train.keep_checkpoints", "eval_steps": "train.eval_every",
    "report_to": "train.trackers", "temperature": "rollout.temperature", "top_p": "rollout.top_p",
    "top_k": "rollout.top_k", "max_completion_length": "rollout.answer_tokens", "dtype": "model.dtype",
}  # fmt: skip
# Other names that users may try.
RENAMED = MAPPING | {
    "lr": "optim.lr", "batch_size": "train.rollouts", "per_device_eval_batch_size": "eval.batch",
    "max_new_tokens": "rollout.answer_tokens", "lora_r": "lora.r", "lora_alpha": "lora.alpha",
    "lora_dropout": "lora.dropout", "target_modules": "lora.targets", "torch_dtype": "model.dtype",
}  # fmt: skip
# Switches that are one value of a setting here.
_VALUES = {
    "bf16": ("model.dtype", "bfloat16"), "fp16": ("model.dtype", "float16"),
    "load_in_4bit": ("model.quantize", "nf4"), "use_vllm": ("engine.kind", "vllm"),
}  # fmt: skip
_NO_EPOCHS = "there are no epochs here: set train.steps, of train.rollouts conversations each"
_WORDS = {
    "num_train_epochs": _NO_EPOCHS,
    "epochs": _NO_EPOCHS,
    "warmup_ratio": "set optim.warmup_steps, a number of steps",
    "gradient_accumulation_steps": "set train.rollouts, of a whole step; train.micro_batch splits them",
    "num_generations": "a setting of methods that sample groups: smopd methods show NAME",
    "output_dir": "the run folder is out= in smopd.train, output_dir= in smopd.SMOPDConfig",
    "train_dataset": "the training examples are train=",
    "eval_dataset": "the evaluation examples are eval=",
    "reward_funcs": "what judges a reply is verifier=, a function of (answer, reply)",
    "processing_class": "the tokenizer of a model in memory is tokenizer=",
}


def explain_name(name: str, value: Any, written: Callable[[str, Any], str]) -> str:
    """What a foreign name is called here, or empty; `written` formats key and value in the caller's way."""
    if name in _WORDS:
        return f"{name}: {_WORDS[name]}"
    if name in _VALUES and not value:
        return f"{name} is one value of {_VALUES[name][0]} here: leave it out, or set that"
    key, value = _VALUES.get(name, (RENAMED.get(name, name), value))
    return f"{name} is {key} here: pass {written(key, value)}" if key != name else ""

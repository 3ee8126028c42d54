"""Checks before torch is imported and weights are loaded, for training and for a dry run."""

from importlib.util import find_spec
from pathlib import Path

from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.data.reading import generated
from smopd.data.trial import refuse_failing_verifiers
from smopd.errors import UserError
from smopd.evaluation.evaluate import prepared_examples, told_so_far
from smopd.methods import in_file
from smopd.models.adapter_files import check_fit, resolve_adapter
from smopd.models.loading import (
    check_model,
    check_quantized,
    config_file,
    load_renderer,
    lora_targets,
    skeleton,
)
from smopd.objective.dry_run import try_parts
from smopd.rollout.assembly import refuse_endpoint
from smopd.rollout.engine import traits_of
from smopd.rollout.lengths import refuse_too_long


def check_training(config: Config, absent: tuple[str, ...] = ()) -> list[Example]:
    """Return the training examples, or raise a UserError. A dry run skips the settings in `absent`."""
    refuse_endpoint(config)
    kind = config.engine.kind
    if config.rollout.overlap and not traits_of(kind).remote:
        reason = f"engine.kind={kind} samples on the device that trains, so nothing could be done meanwhile"
        raise UserError(f"rollout.overlap: {reason}; start servers and set engine.kind=vllm-http")
    for key, (name, extra) in _lacking_packages(config).items():
        if key not in absent:
            raise UserError(f"{key}: {name} is not installed: pip install 'smopd[{extra}]'")
    plan = plan_of(config)
    check_quantized(config)
    examples = [] if "data.train" in absent else prepared_examples(config, "train")
    if config.train.eval_every and "data.eval" not in absent:
        prepared_examples(config, "eval")
    if config.train.teacher_every and examples and not any(told_so_far(one, 0) for one in examples):
        problem = f"no task of {config.data.train} knows what a middle reply should say"
        remedy = "set it to 0, or train on such tasks (everyday:train)"
        raise UserError(f"train.teacher_every: {problem}; {remedy}")
    if "model.path" not in absent:
        check_model(config)
    if config.model.adapter and "model.adapter" not in absent:
        resolve_adapter(config.model.adapter)
    if in_file(config.method):
        try_parts(plan, config.train.steps, examples)
    if not config.model.adapter and "model.path" not in absent:
        lora_targets(skeleton(config), config.lora.targets)
    return examples


def check_dry_run(config: Config) -> tuple[str, ...]:
    """Check what training checks before it plays; return the settings that cannot be checked here."""
    absent = _absent(config)
    examples = check_training(config, absent)
    refuse_failing_verifiers(examples)
    if "model.path" not in absent:
        refuse_too_long(load_renderer(config), examples, [play.view for play in plan_of(config).plays])
        if config.model.adapter and "model.adapter" not in absent:
            check_fit(skeleton(config), resolve_adapter(config.model.adapter))
    return absent


def _absent(config: Config) -> tuple[str, ...]:
    """Return the settings that name a file, folder, package or hub model that is not on this machine."""
    data, adapter = config.data, config.model.adapter
    present = {
        "model.path": Path(config.model.path).expanduser().exists() or config_file(config) is not None,
        "model.adapter": not adapter or Path(adapter).expanduser().exists(),
        "data.train": _is_here(data.train),
        "data.eval": not config.train.eval_every or _is_here(data.eval),
    }
    return (*(key for key, there in present.items() if not there), *_lacking_packages(config))


def _is_here(data: str) -> bool:
    return generated(data) or Path(data).expanduser().is_file()


def _lacking_packages(config: Config) -> dict[str, tuple[str, str]]:
    """Settings that need a package which is not installed: its name, and the extra that brings it."""
    needed = [("train.trackers", name, "track") for name in config.train.trackers]
    needed += [("engine.kind", "vllm", "vllm")] if config.engine.kind == "vllm" else []
    there = {name for _, name, _ in needed if find_spec(name) or find_spec(f"{name}X")}  # tensorboardX
    return {key: (name, extra) for key, name, extra in needed if name not in there}

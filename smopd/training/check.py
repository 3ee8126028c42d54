"""Checks before torch is imported and weights are loaded, for training and for a dry run."""

from importlib.util import find_spec
from pathlib import Path

from smopd.chat.template import refuse_too_long
from smopd.config import Config, plan_of
from smopd.data import Example
from smopd.data.check import refuse_failing_verifiers
from smopd.data.reading import generated
from smopd.errors import UserError
from smopd.evaluation.evaluate import prepared_examples, told_so_far
from smopd.methods import in_file
from smopd.models import load_renderer
from smopd.models.adapter_files import check_fit, resolve_adapter
from smopd.models.loading import check_model, check_quantized, config_file, lora_targets, skeleton
from smopd.objective.dry_run import try_parts
from smopd.rollout.assembly import refuse_endpoint
from smopd.rollout.engine import refuse_unready, traits_of


def check_training(config: Config, absent: tuple[str, ...] = ()) -> list[Example]:
    """Return the training examples, or raise a UserError. A dry run skips the settings in `absent`."""
    refuse_endpoint(config)
    kind = config.engine.kind
    if config.rollout.overlap and not traits_of(kind).remote:
        reason = f"engine.kind={kind} samples on the device that trains, so nothing could be done meanwhile"
        raise UserError(f"rollout.overlap: {reason}; start servers and set engine.kind=vllm-http")
    if "engine.kind" not in absent:
        refuse_unready(config.engine)
    for name in config.train.trackers:
        if not any(map(find_spec, (name, f"{name}X"))):  # tensorboardX stands for tensorboard
            raise UserError(f"train.trackers: {name} is not installed: pip install 'smopd[track]'")
    plan = plan_of(config)
    if not plan.scored:
        raise UserError(f"method: every term of {config.method} has the scale 0: nothing would be learnt")
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
        renderer = None if "model.path" in absent else load_renderer(config)
        try_parts(plan, config.train.steps, examples, renderer)
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
    present = {
        "model.path": Path(config.model.path).expanduser().exists() or config_file(config) is not None,
        "model.adapter": not config.model.adapter or Path(config.model.adapter).expanduser().exists(),
        "engine.kind": config.engine.kind != "vllm" or find_spec("vllm") is not None,
    }
    for split in ("train", "eval") if config.train.eval_every else ("train",):
        name = getattr(config.data, split)
        present[f"data.{split}"] = generated(name) or Path(name).expanduser().is_file()
    return tuple(key for key, there in present.items() if not there)

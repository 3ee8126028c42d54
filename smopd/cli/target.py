"""What a verb is asked to play: a run folder, a recipe, a model or an endpoint, with its options."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smopd.errors import UserError
from smopd.rollout.engine import traits_of

if TYPE_CHECKING:
    from smopd.config import Config

TARGET_HELP = {
    "target": "A run folder or one of its checkpoints, a model folder, a hub name, or 'pocket'; a recipe "
    "(.toml): its model before training; for openai only the name.",
    "engine": "auto, hf, vllm (in this process), vllm-http (its servers), or openai: any chat endpoint.",
    "url": "Base URL of a server, for vllm-http and openai. May be repeated.",
    "served_model": "openai: the model's name at the endpoint; default TARGET.",
    "adapter": "A PEFT adapter, or a run folder whose newest checkpoint to use.",
    "data": "JSONL of ours, LiC's JSON, hf:NAME, or pocket:eval[:N].",
    "verifiers": "Your Python file with @verifier functions. May be repeated.",
}


@dataclass(frozen=True)
class Target:
    """`run`: the run folder it is or is in, if there is one; `settings`: what was asked for, as KEY=VALUE."""

    config: "Config"
    run: Path | None
    adapter: str | None  # the one asked for: by --adapter, or as a run's checkpoint
    settings: list[str]


def resolve_target(
    target: str, given: dict[str, Any], set_: Sequence[str] | None, adapter: str | None
) -> Target:
    """The settings of a target: a run's own, or a recipe's, with what options and --set say."""
    from smopd.config import load_config

    settings = list(set_ or [])
    settings += [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    overrides = list(settings)
    asked = load_config(None, overrides).engine
    endpoint, folder = not traits_of(asked.kind).token_ids, Path(target)
    # For an endpoint nothing local is looked up, not even a folder of the same name.
    if not endpoint and (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        folder, adapter = _of_adapter(folder, adapter)
    run = folder / "config.toml"
    is_run = run.exists() and not endpoint
    recipe = "pocket" if target == "pocket" and not endpoint else None
    if target.endswith(".toml") and Path(target).is_file() and not endpoint:
        recipe = target
    if not is_run and recipe is None:
        # As the recipes have it, so that a model is played before and after training by the same engine.
        overrides[:0] = ["engine.kind=auto"]
        overrides.append(f"model.path={json.dumps(target)}")
    # An empty --served-model leaves the choice to the endpoint.
    if endpoint and given.get("engine.model") is None and not asked.model:
        overrides.append(f"engine.model={json.dumps(target)}")
    config = load_config(run if is_run else recipe, overrides)
    _check_options(config, given, adapter)
    return Target(config, folder if is_run else None, adapter, settings)


def _of_adapter(folder: Path, adapter: str | None) -> tuple[Path, str]:
    """The run that an adapter folder is a checkpoint of, and the adapter."""
    if adapter is not None:
        raise UserError(f"--adapter: {folder} is an adapter itself; leave out one of the two")
    at = folder if folder.parent.name == "checkpoints" else folder.resolve()
    run = at.parent.parent
    if at.parent.name != "checkpoints" or not (run / "config.toml").exists():
        advice = f"give its model, and with it --adapter {folder}"
        raise UserError(f"{folder}: an adapter alone, not a checkpoint in a run folder; {advice}")
    return run, str(folder)


def _check_options(config: "Config", given: dict[str, Any], adapter: str | None) -> None:
    """An option that would be passed over in silence is an error."""
    kind, traits = config.engine.kind, traits_of(config.engine.kind)
    if given.get("engine.servers") and not traits.remote:
        raise UserError(f"--url: the engine {kind} has no servers; add --engine openai or --engine vllm-http")
    if given.get("engine.model") is not None and traits.token_ids:
        only = "only openai takes a model by its name at an endpoint"
        raise UserError(f"--served-model: the engine is {kind}; {only}")
    if adapter and not traits.token_ids:
        advice = "load the adapter there and give its name with --served-model"
        raise UserError(f"--adapter: an endpoint plays the model it serves; {advice}")

"""Resolve what an argument names: a run folder, one of its checkpoints, a recipe, a model or an endpoint."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smopd.config import Config, load_config, recipe_names
from smopd.config_io import choices
from smopd.errors import UserError
from smopd.models import resolve_adapter
from smopd.rollout.engine import traits_of
from smopd.runs.layout import CHECKPOINTS, CONFIG, is_run


@dataclass(frozen=True)
class Named:
    """What a name stands for: a recipe (of a run, its config.toml) or, if `recipe` is None, a model."""

    recipe: str | Path | None = None
    run: Path | None = None
    checkpoint: Path | None = None


def identify(name: str | Path) -> Named:
    """Resolve a name that a user gives; raise a UserError for an adapter outside a run, or a missing run."""
    path = Path(name).expanduser()
    beside = path.parent.glob(f"*/{CONFIG}") if path.parent.name and not path.exists() else ()
    if runs := [file.parent.name for file in sorted(beside)][:20]:
        raise UserError(f"{path}: no such folder{choices(path.name, runs, f'runs in {path.parent}')}")
    if is_run(path):
        return Named(path / CONFIG, run=path)
    if (path / "adapter_config.json").exists() and not (path / "config.json").exists():
        run = run_of(path) or run_of(path.resolve())
        if run is None:
            advice = f"give its model, and with it --adapter {path}"
            raise UserError(f"{path}: an adapter alone, not a checkpoint in a run folder; {advice}")
        return Named(run / CONFIG, run=run, checkpoint=path)
    if str(name) in recipe_names() or (path.suffix == ".toml" and path.is_file()):
        return Named(name)
    return Named()


def run_of(path: Path) -> Path | None:
    run = path.parent.parent if path.parent.name == CHECKPOINTS else path
    return run if is_run(run) else None


@dataclass(frozen=True)
class Target:
    config: Config
    run: Path | None  # the run folder that it is or is in
    adapter: str | None  # requested by --adapter, or as a run's checkpoint
    settings: list[str]  # requested, as KEY=VALUE

    def find_adapter(self) -> Path | None:
        """The adapter to play: the one requested, the run's newest checkpoint, or model.adapter."""
        wanted = self.adapter or self.run or self.config.model.adapter
        return resolve_adapter(wanted) if wanted else None


def resolve_target(
    target: str, option_settings: dict[str, Any], set_: Sequence[str] | None, adapter: str | None
) -> Target:
    """Load the settings of a run, recipe or model, overridden by options and --set."""
    settings = list(set_ or [])
    settings += [f"{key}={json.dumps(value)}" for key, value in option_settings.items() if value is not None]
    overrides = list(settings)
    asked = load_config(None, overrides).engine
    endpoint = not traits_of(asked.kind).token_ids
    # For an endpoint nothing local is looked up, not even a folder of the same name.
    named = Named() if endpoint else identify(target)
    if named.checkpoint:
        if adapter is not None:
            raise UserError(f"--adapter: {target} is an adapter itself; leave out one of the two")
        adapter = str(named.checkpoint)
    if named.recipe is None:
        # As in the recipes, so that a model is played by the same engine before and after training.
        overrides[:0] = ["engine.kind=auto"]
        overrides.append(f"model.path={json.dumps(target)}")
    # An empty --served-model leaves the choice to the endpoint.
    if endpoint and option_settings.get("engine.model") is None and not asked.model:
        overrides.append(f"engine.model={json.dumps(target)}")
    config = load_config(named.recipe, overrides)
    _check_options(config, option_settings, adapter)
    return Target(config, named.run, adapter, settings)


def _check_options(config: Config, option_settings: dict[str, Any], adapter: str | None) -> None:
    """Refuse options that would be silently ignored."""
    kind, traits = config.engine.kind, traits_of(config.engine.kind)
    if option_settings.get("engine.servers") and not traits.remote:
        raise UserError(f"--url: the engine {kind} has no servers; add --engine openai or --engine vllm-http")
    if option_settings.get("engine.model") is not None and traits.token_ids:
        only = "only openai takes a model by its name at an endpoint"
        raise UserError(f"--served-model: the engine is {kind}; {only}")
    if adapter and not traits.token_ids:
        advice = "load the adapter there and give its name with --served-model"
        raise UserError(f"--adapter: an endpoint plays the model it serves; {advice}")

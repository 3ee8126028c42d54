"""The typed tree of every setting, and where its values come from.

A value comes from the last of these that sets it: the field's default, the settings of the file's method, the
recipe file, the settings of a method switched on the command line, --set. An unknown key, a string for a
number or a value out of range is an error that names the place; nothing is guessed. The defaults are the
paper's values and, where the paper leaves a point open, the project's choices. Left out: what is no part of
an experiment (where a run is written, how it is logged, which device it uses; that is the command line's),
and the reading, checking and writing of such a tree (`smopd/config_io.py`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, field_validator

from smopd.config_io import (
    check,
    choices,
    config_hash,
    describe_fields,
    differences,
    flatten,
    nest,
    parse_override,
    read_toml,
    to_toml,
)
from smopd.errors import UserError
from smopd.methods import METHODS
from smopd.settings import Section, Settings
from smopd.verify.prompts import Prompts

__all__ = [
    "Config",
    "config_hash",
    "describe",
    "differences",
    "load_config",
    "recipe_names",
    "settings_hash",
    "to_toml",
]

RECIPES = Path(__file__).parent / "recipes"
# What may change while a run goes on, since no result depends on it: what samples and where it is reached (a
# server moves, another engine takes over), how scoring is cut, who watches.
MAY_CHANGE = (
    "engine.", "user.", "train.micro_batch", "train.row_tokens", "train.recompute", "train.shard", "train.keep_checkpoints",
    "train.save_rollouts", "train.save_tokens", "train.max_skipped", "train.trackers",
)  # fmt: skip


class Objective(Section):
    """The loss of a rollout."""

    keep: Annotated[
        float, Field(gt=0, le=1, description="share of a middle reply's tokens kept; 1 = no mask")
    ] = 0.8
    eta: Annotated[
        float,
        Field(ge=0, le=1, description="how far the final outcome moves a turn's weight; 0 = not at all"),
    ] = 0.0
    ranking: Annotated[
        Literal["entropy", "random", "divergence", "inverted"],
        Field(
            description="the mask keeps the highest of these; inverted drops the highest entropies; controls but for entropy"
        ),
    ] = "entropy"
    denominator: Annotated[
        Literal["kept", "all"],
        Field(description="a masked reply's loss is divided by its kept tokens, or (control) by all"),
    ] = "kept"
    beta_mid: Annotated[
        float, Field(ge=0, le=1, description="teacher's share in the middle turns' mixture (0.5 = JS)")
    ] = 0.5
    beta_final: Annotated[
        float, Field(ge=0, le=1, description="of answer and FULL losses: 1 = reverse KL, 0 = forward KL")
    ] = 1.0
    clip: Annotated[
        float,
        Field(gt=0, allow_inf_nan=True, description="cap of one token's divergence, in nats; inf = off"),
    ] = 0.5
    clip_level: Annotated[
        Literal["position", "vocab"],
        Field(description="cap after the sum over the vocabulary, or each of its terms (OPSD)"),
    ] = "position"
    clip_mode: Annotated[
        Literal["hard", "scale"],
        Field(description="no gradient above the cap, or its direction kept and its length scaled down"),
    ] = "hard"
    rho: Annotated[
        float, Field(ge=0, le=1, description="probability that an example also gets the FULL branch")
    ] = 0.2
    full_branch: Annotated[
        Literal["additive", "exclusive"],
        Field(description="FULL loss beside the others, or instead of them (MAIGO)"),
    ] = "additive"
    mask_after: Annotated[
        float, Field(ge=0, le=1, description="share of the steps before the entropy mask begins")
    ] = 0.33
    quantile: Annotated[
        Literal["linear", "lower", "higher", "midpoint", "nearest"],
        Field(description="interpolation of the mask's threshold"),
    ] = "linear"
    importance_cap: Annotated[
        float,
        Field(
            ge=0, description="truncated importance weight of engine against training, at most this; 0 = off"
        ),
    ] = 0.0
    eps: Annotated[
        float, Field(gt=0, description="floor of a turn's discrepancy in the reliability weight")
    ] = 1e-6


class Config(Settings):
    """Every setting. Made by `load_config`: the class itself does not apply the settings of the method it
    names.
    """

    prompts: Prompts = Field(default_factory=Prompts)
    method: Annotated[
        str, Field(description="a declared method; sets what the recipe and --set leave open")
    ] = "entropy"
    objective: Objective = Field(default_factory=Objective)

    @field_validator("method")
    @classmethod
    def _declared(cls, name: str) -> str:
        if name in METHODS:
            return name
        raise ValueError(f"unknown method{choices(name, list(METHODS), 'methods')}")


def recipe_names() -> list[str]:
    """The shipped recipes, by the name that `load_config` takes."""
    return sorted(path.name.removesuffix(".toml") for path in RECIPES.glob("*.toml"))


def load_config(
    recipe: str | Path | None = None, overrides: Sequence[str] = (), method: str | None = None
) -> Config:
    """One Config from a recipe (shipped name or TOML file), `a.b=value` overrides and a method; UserError
    tells what is wrong.
    """
    source, file = _read_recipe(recipe) if recipe is not None else ("", {})
    argument = {} if method is None else {"method": method}
    problems = check(Config, file, source) + check(Config, argument, "--method")
    given: dict[str, Any] = {}
    for text in overrides:
        try:
            key, value = parse_override(text)
        except UserError as error:
            problems.append(str(error))
            continue
        tree = nest({key: value})
        problems += check(Config, tree, "--set")
        given |= flatten(tree)
    if method is not None and given.get("method", method) != method:
        problems.append(f"--set method={given['method']}: contradicts --method {method}; give one of them")
    if problems:
        raise UserError("\n".join(problems))

    explicit = argument | {key: value for key, value in given.items() if key == "method"}
    if explicit:  # a switch on the command line is meant to switch: it wins over what a file spells out
        return Config.model_validate(nest(flatten(file) | _switched(explicit["method"]) | explicit | given))
    settings = METHODS[file.get("method", Config().method)].settings
    return Config.model_validate(nest(settings | flatten(file) | given))


def _switched(method: str) -> dict[str, Any]:
    """A method's settings, and the defaults of what only other methods set: switching from one leaves nothing
    of it behind.
    """
    defaults = flatten(Config().model_dump())
    return {key: defaults[key] for other in METHODS.values() for key in other.settings} | METHODS[
        method
    ].settings


class _Settings(BaseModel, extra="allow"):
    """Any settings."""


def settings_hash(config: Config) -> str:
    """A hash of the settings a run must keep. Defaults are left out, so a setting that a later version adds
    changes nothing.
    """
    given = flatten(config.model_dump(exclude_defaults=True))
    return config_hash(_Settings(**{k: v for k, v in given.items() if not k.startswith(MAY_CHANGE)}))


def describe() -> Iterator[tuple[str, Any, str]]:
    """(dotted key, default, description) of every setting, in order."""
    return describe_fields(Config)


def _read_recipe(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """The name to complain under and the tables of a recipe; a shipped name wins over a file of the same name
    (write ./NAME).
    """
    name, path = str(recipe), Path(recipe)
    shipped = recipe_names()
    if name in shipped:
        return f"{name}.toml", read_toml(RECIPES / f"{name}.toml", f"{name}.toml")
    if path.is_file():
        return name, read_toml(path, name)
    if (path / "config.toml").is_file():
        raise UserError(f"{name}: is a folder; its settings are in {path / 'config.toml'}")
    raise UserError(
        f"{name}: no such recipe or file{choices(path.name.removesuffix('.toml'), shipped, 'shipped recipes')}"
    )

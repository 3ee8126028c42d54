"""All settings as one typed tree, and the precedence of their sources.

The last source that sets a value wins: the field's default, the recipe's method, the recipe file, a method
chosen on the command line, --set. Defaults are the paper's values, or the project's choice where the paper is
silent. The output folder and the device are not settings, since they are not part of an experiment.
"""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model, field_validator

from smopd import objective as parts
from smopd.config_io import check, choices, config_hash, flatten, hash_values, nest

from smopd.config_io import parse_override, read_toml, to_toml  # isort: skip
from smopd.errors import UserError
from smopd.methods import DEFAULT, METHODS, find_method, in_file
from smopd.plugins import calling, file_text_digest, unexpected
from smopd.settings import Section, Settings
from smopd.trainer_names import RENAMED, explain_name
from smopd.verify.sections import Prompts, Rules

__all__ = ["Config", "config_hash", "load_config", "recipe_names", "settings_hash", "to_toml"]

RECIPES = Path(__file__).parent / "recipes"
# Settings that may change when a run is resumed, since no result depends on them: the engine and its address,
# how scoring is batched, logging.
MAY_CHANGE = (
    "engine.", "user.", "train.micro_batch", "train.row_tokens", "train.recompute", "train.shard",
    "train.keep_checkpoints", "train.save_rollouts", "train.save_tokens", "train.alternatives",
    "train.max_skipped", "train.trackers", "eval.save_tokens", "eval.save_tokens_limit",
    "eval.alternatives",
)  # fmt: skip


class Tree(Settings):
    """Every setting; `objective` is the method's table. Use `load_config`: it applies the method's values."""

    prompts: Prompts = Field(default_factory=Prompts)
    rules: Rules = Field(default_factory=Rules)
    method: str = Field(DEFAULT, description="a method's name, or your own Python file")
    objective: Any = None

    @field_validator("method")
    @classmethod
    def _check_method(cls, name: str) -> str:
        if name in METHODS:
            return name
        if in_file(name) is None:
            raise ValueError(f"unknown method{choices(name, list(METHODS), 'methods')}")
        find_method(name)
        return name


@cache
def _with_section(section: type[Section]) -> type[Tree]:
    objective = (section, Field(default_factory=section))
    return create_model("Config", __base__=Tree, __doc__=Tree.__doc__, objective=objective)


if TYPE_CHECKING:
    Config = Tree
else:  # with the section of the default method
    Config = _with_section(METHODS[Tree.model_fields["method"].default].section)


def config_class(method: str) -> type[Config]:
    return _with_section(find_method(method).section)


def plan_of(config: Config) -> "parts.Plan":
    """The plan of the config's method; raises a UserError if settings make each other ineffective."""
    method = find_method(config.method)
    with calling(method.plan, lambda: f"plan of '{method.name}'", method.made_at):
        plan = method.plan(config.objective)
        if not isinstance(plan, parts.Plan):
            raise unexpected(plan, "a smopd.objective.Plan")
    return plan


def recipe_names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in RECIPES.glob("*.toml"))


def load_config(
    recipe: str | Path | None = None, overrides: Sequence[str] = (), method: str | None = None
) -> Config:
    """Build a Config from a recipe (a name or a TOML file), `a.b=value` overrides and a method."""
    source, file = _read_recipe(recipe) if recipe is not None else ("", {})
    sets: list[dict[str, Any] | str] = []  # each override as a tree, or its error message
    for text in overrides:
        try:
            sets.append(nest(dict([parse_override(text)])))
        except UserError as error:
            sets.append(str(error))
    updates = {key: value for one in sets if isinstance(one, dict) for key, value in flatten(one).items()}
    switched, named = method if method is not None else updates.get("method"), file.get("method", DEFAULT)
    chosen = named if switched is None else switched
    known, explain = _known_class(chosen), partial(_explain, chosen)
    tree = known or Config
    if switched is not None and known and _known_class(named) not in (None, known):  # another method's table
        file = {key: value for key, value in file.items() if key != "objective"}
    problems = check(tree, file, source, explain)
    if known and in_file(chosen):
        declared = find_method(chosen)
        where = f"{declared.made_at}, settings of '{declared.name}'"
        problems += check(tree, nest(declared.settings), where, explain)
    problems += check(tree, {"method": method}, "--method") if method is not None else []
    for one in sets:
        problems += [one] if isinstance(one, str) else check(tree, one, "--set", explain)
    if method is not None and updates.get("method", method) != method:
        problems.append(f"--set method={updates['method']}: contradicts --method {method}; give one of them")
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))
    values = find_method(chosen).settings | flatten(file)
    if switched is not None:  # it wins over the recipe's settings
        values |= _switch_method(chosen, tree) | {"method": chosen}
    return tree.model_validate(nest(values | updates))


def _explain(method: str, key: str, value: Any) -> str:
    """Explain an unknown key: a setting of other methods, or another library's name for a setting."""
    table, _, name = key.rpartition(".")
    methods = sorted(METHODS.values(), key=lambda m: m.group != "paper")
    owners = [m.name for m in methods if table == "objective" and name in m.section.model_fields]
    if owners:
        some = ", ".join([*owners[:5], "..."] if owners[5:] else owners)
        return f"{key} is not a setting of {method}; it belongs to {some}"
    if name in RENAMED:
        return f"unknown key '{key}'; did you mean '{RENAMED[name]}'?" if RENAMED[name] != key else ""
    return explain_name(name, value, lambda other, shown: f"{other}={shown}")


def _switch_method(method: str, tree: type[Config]) -> dict[str, Any]:
    """The method's settings; `objective` settings that only other methods set return to their defaults."""
    defaults = {k: v for k, v in flatten(tree().model_dump()).items() if k.startswith("objective.")}
    others = {key for other in METHODS.values() for key in other.settings} & defaults.keys()
    return {key: defaults[key] for key in others} | find_method(method).settings


def _known_class(method: Any) -> type[Config] | None:
    known = isinstance(method, str) and not check(Config, {"method": method}, "")
    return config_class(method) if known else None


def settings_hash(config: Config) -> str:
    """Hash the settings a run must keep; defaults are left out, so settings added later don't change it."""
    values = flatten(config.model_dump(exclude_defaults=True))
    if file := in_file(config.method):
        values["method file"] = file_text_digest(file)
    return hash_values({k: v for k, v in values.items() if not k.startswith(MAY_CHANGE)})


def _read_recipe(recipe: str | Path) -> tuple[str, dict[str, Any]]:
    """Return source and tables of a recipe; a shipped name wins over a file (write ./NAME for the file)."""
    name, path = str(recipe), Path(recipe)
    shipped = recipe_names()
    if name in shipped:
        return f"{name}.toml", read_toml(RECIPES / f"{name}.toml", f"{name}.toml")
    if path.is_file():
        return name, read_toml(path, name)
    if (path / "config.toml").is_file():
        raise UserError(f"{name}: is a run folder; its settings are in {path / 'config.toml'}")
    if path.is_dir():
        raise UserError(f"{name}: is a folder; expected a recipe's name or a TOML file")
    near = choices(path.name.removesuffix(".toml"), shipped, "shipped recipes")
    raise UserError(f"{name}: no such recipe or file{near}")

"""Study files and their grid of runs: arms x seeds x models x values of any setting. A cell is an ordinary
run, known by the hash of its settings, so studies that share a folder share cells.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from smopd.config import Config, config_class, load_config, recipe_names, settings_hash
from smopd.config_io import check, choices, flatten, leaves, nest, parse_override, read_toml, scalar
from smopd.data.reading import generated
from smopd.errors import UserError
from smopd.files import digest

STUDIES = Path(__file__).parent / "studies"
Tree = dict[str, Any]
# Settings that all cells must share.
SHARED = ("data.eval", "eval.", "data.verifiers", "data.databases", "prompts.", "rules.")
KEYS = ["name", "title", "about", "paper", "place", "recipe", "seeds", "reference", "set", "axes", "arms"]
KEYS += ["models"]


class Choice(NamedTuple):
    name: str
    of: str | None  # method of an arm (None: the recipe's) or recipe of a model
    set: Tree


@dataclass(frozen=True)
class PlannedCell:
    model: str
    arm: str
    axes: Tree
    seed: int
    config: Config
    key: str  # hash of the settings a run must keep

    @property
    def folder(self) -> str:
        values = [f"{setting.rpartition('.')[2]}{value}" for setting, value in self.axes.items()]
        return "-".join([slug(self.model), slug(self.arm), *map(slug, values), f"seed{self.seed}", self.key])

    @property
    def label(self) -> str:
        values = [f"{setting}={value}" for setting, value in self.axes.items()]
        return ", ".join([self.model, self.arm, *values, f"seed {self.seed}"])


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    about: str
    reference: str
    paper: str
    place: str  # default folder under runs/; studies with the same one share cells
    seeds: list[int]
    arms: list[Choice]
    models: list[Choice]
    axes: dict[str, list[Any]]
    cells: list[PlannedCell]
    tree: Tree  # the file's tables, with what was set on the command line

    def base_config(self, model: str) -> Config:
        """The config for evaluating the untrained model: that of its first cell."""
        return next(cell.config for cell in self.cells if cell.model == model)

    def base_folder(self, model: str) -> str:
        """Its name under base/, from the settings that an evaluation depends on."""
        # Without defaults, so that settings added later change nothing.
        settings = flatten(self.base_config(model).model_dump(exclude_defaults=True))
        chosen = {k: v for k, v in settings.items() if k.startswith(("model.", "chat.", *SHARED))}
        return f"{slug(model)}-{digest(chosen, 6)}"


def slug(text: str) -> str:
    """Reduce text to characters that every file system accepts."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.").lower()[:40] or "x"


def study_names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in STUDIES.glob("*.toml"))


def load_study(source: str | Path, overrides: Sequence[str] = ()) -> Study:
    """Load a shipped study by name, or a TOML file, with `a.b=value` settings for all cells."""
    name, path = str(source), Path(source)
    stem = path.name.removesuffix(".toml")
    if name in study_names():
        name = f"{name}.toml"
        path = STUDIES / name
    elif not path.is_file():
        shipped = choices(stem, study_names(), "shipped studies")
        if path.is_dir():
            ran = (path / "study.json").is_file() or (path / "studies").is_dir()
            instead = f"; its report: smopd report {name}" if ran else ""
            what = f"is a folder; expected a study file (TOML) or a name{instead}"
            raise UserError(f"{name or '.'}: {what}{shipped}")
        raise UserError(f"{name}: no such study {'file' if path.suffix else 'or file'}{shipped}")
    tree = read_toml(path, name)
    if overrides and isinstance(tree.get("set", {}), dict):
        tree |= {"set": flatten(tree.get("set", {})) | dict(map(parse_override, overrides))}
    return parse_study({"name": stem} | tree, name)


def parse_study(tree: Tree, source: str) -> Study:
    reader = _Reader(tree, source)
    texts = ("title", "about", "paper", "place", "recipe")
    title, about, paper, place, recipe = (reader.get(key, "", "a string") for key in texts)
    name, axes = reader.get("name", "study", "a string"), reader.axes()
    expected = "a list of different whole numbers, e.g. [42, 123, 456]"
    seeds = reader.get("seeds", [42], expected, _are_seeds)
    common = reader.settings(tree.get("set", {}), "[set]")
    arms, models = reader.tables("arms", "method"), reader.tables("models", "recipe")
    if models and recipe:
        reader.complain("recipe: each of the [[models]] names its own; delete one of the two")
    if not models:
        if not recipe:
            shipped = ", ".join(recipe_names())
            reader.complain(f"recipe: missing; a shipped recipe ({shipped}) or a TOML file")
        models = [Choice(slug(Path(recipe).name.removesuffix(".toml")), recipe, {})]
    names = [arm.name for arm in arms]
    reference = reader.get("reference", names[0] if arms else "", "a string")
    if not arms:
        reader.complain('arms: missing; begin each with [[arms]] and give it a name, e.g. name = "baseline"')
    elif reference not in names:
        reader.complain(f"reference = {reference!r}: no such arm{choices(reference, names, 'arms')}")
    for key in (key for key in tree if key not in KEYS):
        reader.complain(f"unknown key '{key}'{choices(key, KEYS, 'keys of a study')}")
    if reader.problems:
        raise UserError("\n".join(dict.fromkeys(reader.problems)))
    cells = []
    # Seeds vary slowest, so that a study that is stopped early has complete replicates.
    for seed, model, values, arm in product(seeds, models, product(*axes.values()), arms):
        point = dict(zip(axes, values, strict=True))
        changes = common | model.set | arm.set | point | {"seed": seed}
        overrides = [f"{key}={scalar(value)}" for key, value in changes.items()]
        try:
            config = load_config(model.of or "", overrides, arm.of)
        except UserError as error:
            raise UserError(f"{source}: {model.name}, {arm.name}: {error}") from None
        cells.append(PlannedCell(model.name, arm.name, point, seed, config, settings_hash(config)))
    _check_grid(cells, source)
    if slug(name) != name:
        expected = "lower case letters, digits, '.', '_' and single '-' only"
        raise UserError(f"{source}: name = {name!r}: it names a folder; {expected}")
    place = place or slug(name)
    return Study(name, title or name, about, reference, paper, place, seeds, arms, models, axes, cells, tree)


def check_files(study: Study) -> None:
    """Raise a UserError now, rather than in every cell, if data of a cell are missing."""
    for data, split in product((cell.config.data for cell in study.cells), ("train", "eval")):
        name, key = getattr(data, split), f"data.{split}"
        if not generated(name) and not name.startswith("hf:") and not Path(name).exists():
            raise UserError(f"{key} = {name}: no such file; name yours with --set {key}=FILE")


def _check_grid(cells: list[PlannedCell], source: str) -> None:
    seen: dict[str, PlannedCell] = {}
    first = {k: v for k, v in flatten(cells[0].config.model_dump()).items() if k.startswith(SHARED)}
    for cell in cells:
        if (twin := seen.setdefault(cell.key, cell)) is not cell:
            what = "have the same settings: one of them changes nothing"
            raise UserError(f"{source}: '{twin.label}' and '{cell.label}' {what}")
        other = flatten(cell.config.model_dump())
        if key := next((k for k in first if first[k] != other[k]), None):
            values = f"{first[key]!r} in '{cells[0].label}', {other[key]!r} in '{cell.label}'"
            alike = "all cells of a study are evaluated alike: set it in [set]"
            raise UserError(f"{source}: {key}: {values}; {alike}")


def _are_seeds(values: list[Any]) -> bool:
    return all(type(seed) is int and seed >= 0 for seed in values) and len(values) == len(set(values)) > 0


class _Reader:
    def __init__(self, tree: Tree, source: str) -> None:
        self.tree, self.source, self.problems = tree, source, list[str]()
        names = [row.get("method") for row in self.rows("arms")]
        known = (n for n in names if isinstance(n, str) and not check(Config, {"method": n}, source))
        self.trees = [config_class(name) for name in known]

    def complain(self, problem: str) -> None:
        self.problems.append(f"{self.source}: {problem}")

    def get(self, key: str, default: Any, expected: str, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """The value of a key, or after a complaint the default, whose type it must have."""
        value = self.tree.get(key, default)
        if isinstance(value, type(default)) and fits(value):
            return value
        self.complain(f"{key} = {value!r}: expected {expected}")
        return default

    def rows(self, key: str) -> list[Tree]:
        expected = f"tables, each begun with [[{key}]]"
        return self.get(key, [], expected, lambda rows: all(isinstance(row, dict) for row in rows))

    def settings(self, table: Any, where: str) -> Tree:
        if not isinstance(table, dict):
            self.complain(f'{where}: expected a table of settings, e.g. "train.steps" = 100')
            return {}
        flat = flatten(table)
        for key, value in flat.items():
            if instead := {"seed": "seeds", "method": "method of an arm"}.get(key):
                self.complain(f"{where}: {key}: give it as {instead}")
            self.check(key, value, where)
        return flat

    def check(self, key: str, value: Any, where: str) -> None:
        """Check a setting, which may belong to any arm's method."""
        tree = next((tree for tree in self.trees if key in leaves(tree)), Config)
        self.problems += check(tree, nest({key: value}), f"{self.source}: {where}")

    def axes(self) -> dict[str, list[Any]]:
        axes = flatten(self.get("axes", {}, 'settings with lists of values, e.g. "train.steps" = [100, 200]'))
        for key, values in axes.items():
            if not isinstance(values, list) or not values:
                self.complain(f"[axes]: {key} = {values!r}: expected a list of values")
                return {}
            for value in values:
                self.check(key, value, "[axes]")
        return axes

    def tables(self, key: str, kind: str) -> list[Choice]:
        """Read the [[arms]] or [[models]] tables; `kind`: method or recipe."""
        tables: list[Choice] = []
        for number, row in enumerate(self.rows(key), 1):
            where = f"[[{key}]] {number}"
            if extra := [k for k in row if k not in ("name", kind, "set")]:
                self.complain(f"{where}: unknown key '{extra[0]}'; the keys are name, {kind}, set")
            name, value = row.get("name", row.get(kind)), row.get(kind)
            if not isinstance(name, str) or not name.strip():
                self.complain(f"{where}: name: missing, or no text")
                continue
            if name == "base" or name in [other.name for other in tables]:
                why = "is the untrained model" if name == "base" else "taken"
                self.complain(f"{where}: name = {name!r}: {why}")
            if kind == "method" and value is not None:
                self.check("method", value, where)
            elif kind == "recipe" and not isinstance(value, str):
                self.complain(f"{where}: recipe: missing, or no text")
            tables.append(Choice(name, value, self.settings(row.get("set", {}), where)))
        return tables

"""A study file, and the grid of runs it asks for: arms x seeds x models x values of any setting.

    name = "masks"                       [[arms]]                       [axes]                       # any setting, crossed
    recipe = "pocket"                    name = "baseline"              "train.steps" = [100, 200]
    seeds = [1, 2, 3]                    method = "baseline"
    reference = "baseline"               [[arms]]                       [[models]]                   # instead of `recipe`
    [set]                                name = "half"                  name = "4b"
    "data.eval" = "pocket:eval:401-800"  set = {"objective.keep" = 0.5} recipe = "qwen3-4b"

Every cell is an ordinary run with a config of its own. Cells are known by the hash of their settings, so
studies that share a folder share what they have in common. It leaves out running (run.py) and reading results
(collect.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from smopd.config import Config, config_class, load_config, recipe_names, settings_hash
from smopd.config_io import check, choices, flatten, leaves, nest, parse_override, read_toml, scalar
from smopd.errors import UserError
from smopd.files import digest
from smopd.methods import METHODS, find_method

STUDIES = Path(__file__).parent / "studies"
SHARED = (
    "data.eval",
    "eval.",
    "data.verifiers",
    "data.databases",
    "prompts.",
)  # one evaluation for all cells


@dataclass(frozen=True)
class Arm:
    """One of the things compared."""

    name: str
    method: str | None = None
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Base:
    """One of the models compared."""

    name: str
    recipe: str
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedCell:
    """One run of the grid; `folder` is its name under cells/."""

    model: str
    arm: str
    axes: dict[str, Any]
    seed: int
    config: Config
    key: str  # hash of the settings a run must keep

    @property
    def folder(self) -> str:
        """Readable, and unique by its last part."""
        values = [f"{setting.rpartition('.')[2]}{value}" for setting, value in self.axes.items()]
        return "-".join([slug(self.model), slug(self.arm), *map(slug, values), f"seed{self.seed}", self.key])

    @property
    def label(self) -> str:
        """For people."""
        values = [f"{setting}={value}" for setting, value in self.axes.items()]
        return ", ".join([self.model, self.arm, *values, f"seed {self.seed}"])


@dataclass(frozen=True)
class Study:
    """A study file, checked, with all its cells."""

    name: str
    title: str
    about: str
    reference: str
    paper: str
    place: str  # default folder under runs/; studies with the same one share cells
    seeds: list[int]
    arms: list[Arm]
    models: list[Base]
    axes: dict[str, list[Any]]
    cells: list[PlannedCell]
    tree: dict[str, Any]  # the file's tables, with what was set on the command line

    def base_config(self, model: str) -> Config:
        """What the untrained model is evaluated with: as the first cell of that model is."""
        return next(cell.config for cell in self.cells if cell.model == model)

    def base_folder(self, model: str) -> str:
        """Its name under base/: by what an evaluation depends on, not by how anything was trained."""
        settings = flatten(self.base_config(model).model_dump())
        chosen = {k: v for k, v in settings.items() if k.startswith(("model.", "chat.", *SHARED))}
        return f"{slug(model)}-{digest(chosen, 6)}"


def slug(text: str) -> str:
    """In characters every file system takes."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.").lower()[:40] or "x"


def study_names() -> list[str]:
    """The shipped studies."""
    return sorted(path.name.removesuffix(".toml") for path in STUDIES.glob("*.toml"))


def load_study(source: str | Path, overrides: Sequence[str] = ()) -> Study:
    """A shipped study by name, or a TOML file, with `a.b=value` settings for all cells; UserError tells what
    is wrong with it.
    """
    name, path = str(source), Path(source)
    if name in study_names():
        path = STUDIES / f"{name}.toml"
        name = f"{name}.toml"
    elif not path.is_file():
        what = "is a folder" if path.is_dir() else "no such study or file"
        raise UserError(
            f"{name}: {what}{choices(path.name.removesuffix('.toml'), study_names(), 'shipped studies')}"
        )
    tree = read_toml(path, name)
    given = dict(map(parse_override, overrides))
    if given and isinstance(tree.get("set", {}), dict):
        tree |= {"set": flatten(tree.get("set", {})) | given}
    return parse_study({"name": path.name.removesuffix(".toml")} | tree, name)


def parse_study(tree: dict[str, Any], source: str) -> Study:
    """The study that a file's tables describe."""
    reader = _Reader(tree, source)
    name = reader.string("name", "study")
    title, about, paper, place = (reader.string(key, "") for key in ("title", "about", "paper", "place"))
    recipe = reader.string("recipe", "")
    seeds = reader.seeds()
    common = reader.settings(tree.get("set", {}), "[set]")
    axes = reader.axes()
    arms = [Arm(n, m, s) for n, m, s in reader.tables("arms", "method")]
    models = [Base(n, r or "", s) for n, r, s in reader.tables("models", "recipe")]
    if models and recipe:
        reader.problems.append(
            f"{source}: recipe: each of the [[models]] names its own; delete one of the two"
        )
    if not models:
        if not recipe:
            reader.problems.append(
                f"{source}: recipe: missing; a shipped recipe ({', '.join(recipe_names())}) or a TOML file"
            )
        models = [Base(slug(Path(recipe).name.removesuffix(".toml")), recipe)]
    if not arms:
        reader.problems.append(
            f'{source}: arms: missing; begin each with [[arms]] and give it a name, e.g. name = "baseline"'
        )
    reference = reader.string("reference", arms[0].name if arms else "")
    if arms and reference not in [arm.name for arm in arms]:
        reader.problems.append(
            f"{source}: reference = {reference!r}: no such arm{choices(reference, [a.name for a in arms], 'arms')}"
        )
    reader.unknown()
    reader.stop()
    cells = [
        _cell(source, common, model, arm, dict(zip(axes, point, strict=True)), seed)
        # Seeds last: a study that is stopped early has whole replicates.
        for seed, model, point, arm in product(seeds, models, product(*axes.values()), arms)
    ]
    _check_grid(cells, source)
    study = Study(
        name,
        title or name,
        about,
        reference,
        paper,
        place or slug(name),
        seeds,
        arms,
        models,
        axes,
        cells,
        tree,
    )
    if slug(name) != name:
        raise UserError(
            f"{source}: name = {name!r}: it names a folder; lower case letters, digits, '.', '_' and single '-' only"
        )
    return study


def _cell(
    source: str, common: dict[str, Any], model: Base, arm: Arm, point: dict[str, Any], seed: int
) -> PlannedCell:
    given = common | model.set | arm.set | point | {"seed": seed}
    try:
        config = load_config(
            model.recipe, [f"{key}={scalar(value)}" for key, value in given.items()], arm.method
        )
    except UserError as error:
        raise UserError(f"{source}: {model.name}, {arm.name}: {error}") from None
    return PlannedCell(model.name, arm.name, point, seed, config, settings_hash(config))


def check_files(study: Study) -> None:
    """A UserError where the data of a cell are not there: better now than once a cell."""
    for cell in study.cells:
        for key, name in (("data.train", cell.config.data.train), ("data.eval", cell.config.data.eval)):
            if not name.startswith(("pocket:", "hf:")) and not Path(name).exists():
                raise UserError(f"{key} = {name}: no such file; name yours with --set {key}=FILE")


def _check_grid(cells: list[PlannedCell], source: str) -> None:
    """Two cells that are the same run, or an evaluation that is not the same for all, make comparisons that
    mean nothing.
    """
    seen: dict[str, PlannedCell] = {}
    for cell in cells:
        if twin := seen.get(cell.key):
            raise UserError(
                f"{source}: '{twin.label}' and '{cell.label}' have the same settings: one of them changes nothing"
            )
        seen[cell.key] = cell
    first = {k: v for k, v in flatten(cells[0].config.model_dump()).items() if k.startswith(SHARED)}
    for cell in cells:
        other = flatten(cell.config.model_dump())
        if unlike := next((k for k in first if first[k] != other[k]), None):
            raise UserError(
                f"{source}: {unlike}: {first[unlike]!r} in '{cells[0].label}', {other[unlike]!r} in '{cell.label}'; "
                "all cells of a study are evaluated alike: set it in [set]"
            )


def _known(method: str) -> bool:
    try:
        find_method(method)
    except ValueError:
        return False
    return True


class _Reader:
    """Reads a study file's keys and collects what is wrong with them."""

    def __init__(self, tree: dict[str, Any], source: str) -> None:
        self.tree, self.source = tree, source
        self.problems: list[str] = []

    def string(self, key: str, default: str) -> str:
        value = self.tree.get(key, default)
        if not isinstance(value, str):
            self.problems.append(f"{self.source}: {key} = {value!r}: expected a string")
            return default
        return value

    def seeds(self) -> list[int]:
        value = self.tree.get("seeds", [42])
        good = isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value)
        if not good or len(set(value)) != len(value):
            self.problems.append(
                f"{self.source}: seeds = {value!r}: expected a list of different whole numbers, e.g. [42, 123, 456]"
            )
            return [42]
        return value

    def settings(self, table: Any, where: str) -> dict[str, Any]:
        if not isinstance(table, dict):
            self.problems.append(
                f'{self.source}: {where}: expected a table of settings, e.g. "train.steps" = 100'
            )
            return {}
        flat = flatten(table)
        for key, value in flat.items():
            if key in ("seed", "method"):
                self.problems.append(
                    f"{self.source}: {where}: {key}: give it as {'seeds' if key == 'seed' else 'method of an arm'}"
                )
            self.problems += self.complaints(key, value, where)
        return flat

    def complaints(self, key: str, value: Any, where: str) -> list[str]:
        """What is wrong with a setting, which may be of any of the arms' methods."""
        rows = self.tree.get("arms", [])
        names = [row.get("method") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        trees = [config_class(name) for name in names if isinstance(name, str) and _known(name)]
        tree = next((tree for tree in trees if key in leaves(tree)), Config)
        return check(tree, nest({key: value}), f"{self.source}: {where}")

    def axes(self) -> dict[str, list[Any]]:
        table = self.tree.get("axes", {})
        if not isinstance(table, dict):
            self.problems.append(
                f'{self.source}: [axes]: expected settings with lists of values, e.g. "train.steps" = [100, 200]'
            )
            return {}
        axes = flatten(table)
        for key, values in axes.items():
            if not isinstance(values, list) or not values:
                self.problems.append(f"{self.source}: [axes]: {key} = {values!r}: expected a list of values")
                return {}
            for value in values:
                self.problems += self.complaints(key, value, "[axes]")
        return axes

    def tables(self, key: str, own: str) -> list[tuple[str, str | None, dict[str, Any]]]:
        """(name, method or recipe, settings) of every [[arms]] or [[models]] table."""
        rows = self.tree.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            self.problems.append(f"{self.source}: {key}: expected tables, each begun with [[{key}]]")
            return []
        found: list[tuple[str, str | None, dict[str, Any]]] = []
        for number, row in enumerate(rows, 1):
            where = f"[[{key}]] {number}"
            if extra := [k for k in row if k not in ("name", own, "set")]:
                self.problems.append(
                    f"{self.source}: {where}: unknown key '{extra[0]}'; the keys are name, {own}, set"
                )
            name, value = row.get("name", row.get(own)), row.get(own)
            if not isinstance(name, str) or not name.strip():
                self.problems.append(f"{self.source}: {where}: name: missing, or no text")
                continue
            if name == "base" or name in [other for other, _, _ in found]:
                self.problems.append(
                    f"{self.source}: {where}: name = {name!r}: {'taken' if name != 'base' else 'is the untrained model'}"
                )
            if value is not None and not isinstance(value, str):
                self.problems.append(f"{self.source}: {where}: {own} = {value!r}: expected a string")
            elif own == "method" and value is not None and not _known(value):
                self.problems.append(
                    f"{self.source}: {where}: method = {value!r}: unknown{choices(value, list(METHODS), 'methods')}"
                )
            elif own == "recipe" and value is None:
                self.problems.append(f"{self.source}: {where}: recipe: missing")
            found.append((name, value, self.settings(row.get("set", {}), where)))
        return found

    def unknown(self) -> None:
        keys = [
            "name",
            "title",
            "about",
            "paper",
            "place",
            "recipe",
            "seeds",
            "reference",
            "set",
            "axes",
            "arms",
            "models",
        ]
        for key in self.tree:
            if key not in keys:
                self.problems.append(
                    f"{self.source}: unknown key '{key}'{choices(key, keys, 'keys of a study')}"
                )

    def stop(self) -> None:
        if self.problems:
            raise UserError("\n".join(dict.fromkeys(self.problems)))

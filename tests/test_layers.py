"""Imports go one way, also lazy ones and those for type checkers: a lower layer never knows a higher one.
Nothing but methods/ names a setting of a method.
"""

import ast
import re
from pathlib import Path

import pytest

import smopd
from smopd.methods import METHODS

ROOT = Path(smopd.__file__).parent
# From the bottom up. Data flows through a training step in this order; what stands in one line may import
# each other.
LAYERS = [
    ("errors", "devices", "seeds", "files", "lazy", "machine", "tracking", "plugins",
     "config_io", "settings", "trainer_names", "formatting", "frames", "svg", "tables",
     "pages", "printing", "progress"),
    ("verify",),
    ("data",),
    ("chat",),
    ("pocket",),
    ("models",),
    ("scoring",),
    ("rollout",),
    ("objective",),
    ("methods",),
    ("config",),
    ("evaluation",),
    ("runs",),
    ("training",),
    ("study",),
    ("viewer",),
    ("planning",),
    ("doctor",),
    ("api",),
    ("cli",),
]  # fmt: skip
LEVEL = {name: number for number, names in enumerate(LAYERS) for name in names}


def imports(source: str, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """(line, part of smopd) for every import, wherever it stands: in a function, under TYPE_CHECKING, by
    name.
    """
    parts = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            names = [f"smopd.{a.name}" for a in node.names] if module == "smopd" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        parts += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("smopd.")]
    return parts


def backwards(source: str, layer: str, package: tuple[str, ...] = ("smopd",)) -> list[str]:
    return [
        f"line {line}: {layer} knows {other}, which stands above it"
        for line, other in imports(source, package)
        if other in LEVEL and other != layer and LEVEL[other] > LEVEL[layer]
    ]


def test_every_part_of_the_package_has_its_layer():
    parts = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert parts - {"__init__", "__main__"} == set(LEVEL)


@pytest.mark.parametrize("part", LEVEL)
def test_imports_go_one_way(part):
    files = sorted((ROOT / part).rglob("*.py*")) or [ROOT / f"{part}.py"]
    files = [path for path in files if path.suffix in (".py", ".pyi")]
    problems = []
    for path in files:
        package = ("smopd", *path.relative_to(ROOT).parts[:-1])
        problems += [f"{path.relative_to(ROOT)}, {p}" for p in backwards(path.read_text(), part, package)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "source",
    [
        "from smopd.training.loop import Trainer",
        "import smopd.training.loop",
        "def f():\n    from smopd.training.loop import Trainer",
        "if TYPE_CHECKING:\n    from smopd.training import loop",
        "from smopd import training",
        "from ..training import loop",
        'import_module("smopd.training.loop")',
    ],
)
def test_an_import_that_points_backwards_is_seen(source):
    assert backwards(source, "data", ("smopd", "data"))
    assert not backwards(source, "cli", ("smopd", "cli"))


# What `smopd/runs/layout.py` names: whoever wants one of them asks `smopd.runs.Run`.
RUN_FILES = {"config.toml", "metrics.jsonl", "timings.jsonl", "starts.jsonl", "warnings.jsonl",
             "evaluations.jsonl", "evaluated.jsonl", "gradients.json"}  # fmt: skip
# What a checkpoint is, which models know; what a recipe that is a run folder is told.
KNOWN = {"models/adapter_files.py", "config.py"}


def files_named(source: str) -> set[str]:
    """Texts of a module that name a file of a run folder; docstrings and other words aside."""
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str)} & RUN_FILES


def test_one_room_knows_the_files_of_a_run():
    others = [path for path in ROOT.rglob("*.py") if path.parent != ROOT / "runs"]
    mentions = {str(path.relative_to(ROOT)): files_named(path.read_text()) for path in others}
    assert {name: files for name, files in mentions.items() if files and name not in KNOWN} == {}
    assert files_named('run / "metrics.jsonl"') == {"metrics.jsonl"}
    assert files_named('"""Reads metrics.jsonl."""') == set()


SETTINGS = {name for method in METHODS.values() for name in method.section.model_fields}


def named_settings(source: str) -> list[str]:
    """The settings of methods that a module names: as a key, as an attribute of a config's objective or, in a
    function that has to do with that table, as a word.
    """
    module = ast.parse(source)
    defined = (ast.FunctionDef, ast.ClassDef)
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    names = []
    for part in [*functions, *(node for node in module.body if not isinstance(node, defined))]:
        nodes = list(ast.walk(part))
        tables = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "objective"]
        texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        names += [n.attr for n in nodes if isinstance(n, ast.Attribute) and n.value in tables]
        names += texts if tables else []
    names += re.findall(r"(?<![\w.])objective\.(\w+)", source)
    return [name for name in names if name in SETTINGS]


def test_no_module_but_the_methods_names_a_setting_of_one():
    # bench: contributors' measurements of one method or another
    others = [path.relative_to(ROOT) for path in ROOT.rglob("*.py")]
    others = [path for path in others if path.parts[0] not in ("methods", "bench")]
    named = {str(path): named_settings((ROOT / path).read_text(encoding="utf-8")) for path in others}
    assert {path: names for path, names in named.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "raise UserError('lower objective.keep')",
        "share = config.objective.rho",
        "f'set objective.clip to {value}'",
        "there = [name for name in ('rho', 'full') if hasattr(config.objective, name)]",
    ],
)
def test_a_named_setting_is_seen(source):
    assert named_settings(source)
    assert not named_settings("plan = method.plan(config.objective); f'objective.{name}'")


def test_tests_mirror_the_package_and_helpers_stand_apart():
    tests = Path(__file__).parent
    rooms = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    folders = {path.name for path in tests.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - rooms <= {"benchmarks", "docs", "support", "vllm"}
    assert [path.name for path in tests.glob("*.py") if not path.name.startswith("test_")] == ["conftest.py"]


def public_classes(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_a_public_class_name_stands_for_one_thing():
    """Methods apart: the settings of each are its `Settings`."""
    homes: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        if path.parent != ROOT / "methods":
            for name in public_classes(path):
                homes.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    assert len(homes) > 100
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_no_file_is_too_long_to_read():
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in ROOT.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 450} == {}

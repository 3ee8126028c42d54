"""Imports go one way, also lazy ones and those for type checkers: a lower layer never knows a higher one."""

import ast
from pathlib import Path

import pytest

import smopd

ROOT = Path(smopd.__file__).parent
# From the bottom up. Data flows through a training step in this order; what stands in one line may import
# each other.
LAYERS = [
    ("errors", "shape", "devices", "seeds", "files", "lazy", "tracking", "plugins", "code_version",
     "config_io", "settings", "trainer_names", "formatting", "tables", "svg", "pages"),
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
    ("training",),
    ("study",),
    ("viewer",),
    ("planning",),
    ("bench",),
    ("doctor",),
    ("cli",),
    ("api",),
]  # fmt: skip
LEVEL = {name: number for number, names in enumerate(LAYERS) for name in names}


def imports(source: str, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """(line, part of smopd) for every import, wherever it stands: in a function, under TYPE_CHECKING, by
    name.
    """
    found = []
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
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("smopd.")]
    return found


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

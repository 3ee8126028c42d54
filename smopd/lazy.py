"""Names of a package that are imported when they are first asked for: importing the package costs nothing.

They stand once, as ordinary imports in the `__init__.pyi` beside `__init__.py`, where type checkers look too.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of the package whose `__init__.py` is `file`."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        a.name: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names
    }

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    return find, sorted(homes)

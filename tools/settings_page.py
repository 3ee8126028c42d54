"""Prints docs/configuration.md from the config tree and the methods' sections; `make docs` writes it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from smopd.config import Config
from smopd.config_io import describe_fields
from smopd.methods import METHODS
from smopd.trainer_names import MAPPING

HEAD = """# Every setting

Settings come from a recipe (`smopd train RECIPE`, a shipped name or a TOML file), a method (`--method`) and
`--set KEY=VALUE`; later ones override earlier ones. Lists may be given as `--set eval.views=full,sharded`.
`--dry-run` checks what training would check and prints the resolved settings and the method's plan; the
settings are also written to the run folder as `config.toml`, which is itself a recipe. An unknown key is an
error that names the nearest one.

The table `[objective]` belongs to the method: each family of methods has its section below, and [your own
method](extending.md) brings its own. Switching the method on the command line drops the recipe's settings of
another family.
"""


def table(rows: Iterable[tuple[str, Any, str]]) -> str:
    """Keys with their defaults and descriptions."""
    # a bar of its own would end a cell
    escaped = ((key, default, text.replace("|", "\\|")) for key, default, text in rows)
    lines = (f"| `{key}` | `{default!r}` | {text} |\n" for key, default, text in escaped)
    return "\n| key | default | meaning |\n|---|---|---|\n" + "".join(lines)


def page() -> str:
    """The whole page."""
    families = defaultdict(list)
    for method in METHODS.values():
        families[method.section].append(f"`{method.name}`")
    parts = [HEAD, table(row for row in describe_fields(Config) if not row[0].startswith("objective."))]
    for section, names in families.items():
        rows = ((f"objective.{key}", default, text) for key, default, text in describe_fields(section))
        parts.append(f"\n## Settings of {', '.join(names)}\n{table(rows)}")
    fields = "".join(f"| `{field}` | `{key}` |\n" for field, key in MAPPING.items())
    parts.append(f"\n## Fields of SMOPDConfig\n\n| field | setting |\n|---|---|\n{fields}")
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")

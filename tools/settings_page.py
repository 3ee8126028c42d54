"""Prints docs/configuration.md from the config tree; `make docs` writes it."""

from smopd.config import describe

HEAD = """# Every setting

Settings come from a recipe (`smopd train RECIPE`, a shipped name or a TOML file), a method (`--method`) and `--set K=V`, the
later over the earlier. `--dry-run` prints the resolved tree, which is also written into the run folder as `config.toml` and is
itself a recipe. An unknown key is an error that names the nearest one.

| key | default | what it is |
|---|---|---|
"""  # noqa: E501


def page() -> str:
    """The whole page."""
    rows = (f"| `{key}` | `{default!r}` | {text} |\n" for key, default, text in describe())
    return HEAD + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")

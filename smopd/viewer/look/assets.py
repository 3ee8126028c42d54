"""The bundled script and style of the pages, put together from the files in app/."""

from collections.abc import Sequence
from importlib.resources import files

CHARTS = ("dom", "charts", "curves")  # what a page needs to draw
SCRIPTS = ("data", "state", *CHARTS, "summary", "run", "study", "list", "tokens", "conversation", "main")
STYLES = ("base", "parts", "charts", "tokens")


def read_script(names: Sequence[str]) -> str:
    """These scripts as one, which leaves no name behind."""
    return f'(function () {{\n"use strict";\n{_read(names, "js")}}})();\n'


def read_style(names: Sequence[str]) -> str:
    return _read(names, "css")


def _read(names: Sequence[str], kind: str) -> str:
    folder = files("smopd.viewer.look") / "app"
    return "\n".join((folder / f"{name}.{kind}").read_text(encoding="utf-8") for name in names)

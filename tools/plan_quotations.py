"""Renews what a page quotes of `smopd plan`: `python tools/plan_quotations.py docs/performance.md`.

A quotation is a fenced block that begins with `$ smopd plan ...`, or such a block of the command alone with a
table behind it. A test fails where a quotation is not what the command prints. It leaves out every other
command of a page.
"""

import re
import shlex
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

QUOTATION = re.compile(
    r"(?P<head>```\n\$ (?P<command>smopd plan [^\n]+)\n)"
    r"(?:(?P<text>(?!```).*?)(?=```)|```\n\n(?P<table>(?:\|[^\n]*\n)+))",
    re.DOTALL,
)


def quotations(page: str) -> list[tuple[str, str]]:
    """(command, what the page says it prints), in order."""
    return [(match["command"], match["text"] or match["table"]) for match in QUOTATION.finditer(page)]


def renewed(page: str, run: Callable[[list[str]], str]) -> str:
    """The page with every quotation as `run` gives it now."""

    def renew(match: re.Match[str]) -> str:
        printed = run(shlex.split(match["command"])[1:])
        return match["head"] + (f"```\n\n{printed}" if match["table"] else printed)

    return QUOTATION.sub(renew, page)


def main(path: Path) -> None:
    """Rewrite a page in place."""
    from smopd.cli.main import app

    def run(arguments: list[str]) -> str:
        printed = StringIO()
        # an empty folder: no data file of this one may be taken for the recipe's
        with TemporaryDirectory() as empty, chdir(empty), redirect_stdout(printed):
            app(arguments, standalone_mode=False)
        return printed.getvalue()

    path.write_text(renewed(path.read_text(encoding="utf-8"), run), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

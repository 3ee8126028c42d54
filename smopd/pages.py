"""The frame of every HTML page: one file without script or outside resource, light, dark and for print.

So a page opens from disk, by mail or on a phone. Same data, same bytes: there is no time stamp.
"""

import importlib.metadata
from functools import cache
from importlib.resources import files

from smopd.formatting import cut, esc


@cache
def style_sheet(package: str = "smopd", name: str = "page.css") -> str:
    """A style sheet that the package ships; by default the one that every page begins with."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def colours() -> str:
    """The part of page.css that defines its colours, for a drawing outside of a page."""
    return style_sheet().partition("\n* {")[0]


def html_page(title: str, header: str, body: str, *styles: str) -> str:
    """The page as one string; `styles` are CSS behind page.css."""
    try:
        version = importlib.metadata.version("smopd")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    # A browser refuses any script or outside resource.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    css = "\n".join([style_sheet(), *styles])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{esc(cut(title, 200))}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        f"<header>{header}</header>\n{body}</main>\n<footer>smopd {esc(version)}</footer>\n</body>\n</html>\n"
    )


def section(title: str, body: str) -> str:
    """A part of a page under its heading; nothing where there is no body."""
    return f"<section>\n<h2>{esc(title)}</h2>\n{body}\n</section>\n" if body else ""

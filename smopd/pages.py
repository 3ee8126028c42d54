"""HTML pages from the templates in viewer/templates: one file each without outside resource, light, dark and
for print. So a page opens from disk, by mail or on a phone. Same data, same bytes: there is no time stamp.

Whatever a template prints is escaped, and made visible, unless it is markup that a template or a drawing
made. Text that may be long goes through the filter `text`, which also cuts it and breaks its long words.
"""

import re
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup as Markup  # of jinja2

from smopd.formatting import cut, esc, html_text
from smopd.tables import cell_text, parts_of

LABEL = 500  # characters of a name or an answer that are shown
_LAYOUT: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}


@cache
def style_sheet(package: str = "smopd", name: str = "page.css") -> str:
    """A style sheet that the package ships; by default the one that every page begins with."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def colours() -> str:
    """The part of page.css that defines its colours, for a drawing outside of a page."""
    return style_sheet().partition("\n* {")[0]


def render(template: str, **values: Any) -> Markup:
    return Markup(_templates().get_template(template).render(**values))


def render_text(package: str, template: str, **values: Any) -> str:
    """A text file from a template of a package: nothing is escaped; `n` writes a count."""
    templates = Environment(loader=PackageLoader(package, ""), undefined=StrictUndefined, **_LAYOUT)
    templates.filters["n"] = "{:,}".format
    return templates.get_template(template).render(**values)


def minus(text: str) -> Markup:
    """A number, or text with numbers, with true minus signs."""
    return Markup(re.sub(r"(?<![\w-])-(?=\d)", "\u2212", html_text(text)))


@cache
def _templates() -> Environment:
    loader = PackageLoader("smopd", "viewer/templates")
    templates = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_escape, **_LAYOUT
    )
    templates.filters |= {
        "text": _text,
        "near": lambda head: head.replace(", ", ",\u00a0"),  # what follows a comma stays on its line
        "minus": minus,
        "cut": cut,
    }
    templates.globals |= {
        "parts_of": parts_of,
        "part_text": lambda part: cell_text((part,)),
        "style_sheet": lambda *name: Markup(style_sheet(*name)),
        "version": version("smopd"),
        "policy": "",
    }
    return templates


def _text(value: object, limit: int = LABEL) -> Markup:
    return Markup(html_text(value, limit))


def _escape(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(esc(value))

"""Render self-contained HTML pages from viewer/templates; the same data gives the same bytes.

Templates escape whatever they print and make it visible, unless it is Markup. Text that may be long goes
through the filter `text`, which also cuts it and breaks long words.
"""

import re
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup as Markup  # of jinja2

from smopd.formatting import cut, esc, html_text

LABEL = 500  # characters shown of a name or an answer, at most
_OPTIONS: dict[str, Any] = {"undefined": StrictUndefined, "keep_trailing_newline": True}
_OPTIONS |= {"trim_blocks": True, "lstrip_blocks": True}


@cache
def style_sheet(package: str = "smopd", name: str = "page.css") -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def render(template: str, **values: Any) -> Markup:
    return Markup(_templates().get_template(template).render(**values))


def render_text(package: str, template: str, **values: Any) -> str:
    """Render a text template of a package: nothing is escaped; the filter `n` formats a count."""
    templates = Environment(loader=PackageLoader(package, ""), **_OPTIONS)
    templates.filters["n"] = "{:,}".format
    return templates.get_template(template).render(**values)


def minus(text: str) -> Markup:
    """Turn the hyphens in front of numbers into minus signs."""
    return Markup(re.sub(r"(?<![\w-])-(?=\d)", "\u2212", html_text(text)))


@cache
def _templates() -> Environment:
    loader = PackageLoader("smopd", "viewer/templates")
    templates = Environment(loader=loader, autoescape=True, finalize=_escape, **_OPTIONS)
    templates.filters |= {
        "text": _text,
        "near": lambda head: head.replace(", ", ",\u00a0"),  # no line break after a comma
        "minus": minus,
        "cut": cut,
    }
    templates.globals |= {
        "style_sheet": lambda *name: Markup(style_sheet(*name)),
        "version": version("smopd"),
        "policy": "",
    }
    return templates


def _text(value: object, limit: int = LABEL) -> Markup:
    return Markup(html_text(value, limit))


def _escape(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(esc(value))

"""matplotlib figures as SVG: the same input gives the same bytes."""

import io
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Sheet

_LOCK = threading.RLock()  # matplotlib's settings are global


@contextmanager
def styled(look: Mapping[str, Any]) -> Iterator[None]:
    """Use matplotlib's default settings, changed by `look`, inside the block; one thread at a time."""
    # The backend has nothing to do with looks.
    apart = ("backend", "interactive", "toolbar", "webagg")
    every: dict[Any, Any] = dict(matplotlib.rcParamsDefault)
    settings = {name: value for name, value in every.items() if not name.startswith(apart)}
    with _LOCK, matplotlib.rc_context(settings | dict(look)):
        yield


def svg_text(sheet: Sheet, title: str) -> str:
    """A figure as SVG, without web addresses and without ids that nothing refers to."""
    # Not savefig, which would draw everything again.
    buffer, nothing = io.BytesIO(), {"Date": None, "Creator": None, "Format": None, "Type": None}
    FigureCanvasSVG(sheet).print_svg(buffer, metadata={"Title": title} | nothing)
    svg = buffer.getvalue().decode()
    svg = re.sub(r"<!DOCTYPE[^>]*>\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    return re.sub(r' id="([^"]*)"', lambda m: m.group() if m.group(1) in used else "", svg)

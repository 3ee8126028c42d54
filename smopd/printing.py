"""All printing: without control characters; results on stdout, everything else on stderr."""

import logging
import os
import re
import sys
import warnings
from typing import Any

from rich.console import Console
from rich.segment import Segment

from smopd.formatting import visible, visible_json

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_plain_warning = warnings.formatwarning


def say(*lines: object, err: bool = False, end: str = "\n") -> None:
    text = "\n".join(visible(str(line)) for line in lines)
    print(text, end=end, file=sys.stderr if err else sys.stdout, flush=not end)


def emit(value: dict[str, Any]) -> None:
    print(visible_json(value))


def output(as_json: bool, facts: dict[str, Any], *parts: Any) -> None:
    """Print a verb's result: the facts as one JSON object, or else the texts and tables."""
    if as_json:
        emit(facts)
        return
    for part in parts:
        say(part) if isinstance(part, str) else console().print(part)


class _GuardedConsole(Console):
    def render(self, *args: Any, **kwargs: Any) -> Any:
        for part in super().render(*args, **kwargs):
            yield part if part.control else Segment(visible(part.text), part.style)


def console(**settings: Any) -> Console:
    """A rich console that prints text literally: no markup, no escape sequences, no emoji codes."""
    return _GuardedConsole(highlight=False, markup=False, emoji=False, **settings)


class _Record(logging.LogRecord):
    def getMessage(self) -> str:
        # Libraries colour their own messages.
        return visible(_COLOURS.sub("", super().getMessage()))


def silent() -> bool:
    """Whether this is a process of a distributed run other than the first, which alone prints."""
    return "LOCAL_RANK" in os.environ and os.environ.get("RANK", "0") != "0"


def guard_logs() -> None:
    """Remove control characters from log lines and warnings, also those of libraries."""
    logging.setLogRecordFactory(_Record)
    warnings.formatwarning = lambda *args, **kwargs: visible(_plain_warning(*args, **kwargs))

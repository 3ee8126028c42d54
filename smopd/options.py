"""Options that several verbs share, and the one way a verb prints JSON."""

import json
import os
from typing import Annotated, Any

import typer

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. optim.lr=1e-5. May be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Unsandboxed = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Run model-written code without isolation where none can be had.")
]


def silent() -> bool:
    """Whether this is one of several processes that a launcher started, and not the first: that one speaks for all."""
    return "LOCAL_RANK" in os.environ and os.environ.get("RANK", "0") != "0"


def emit(value: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False))


def permit(unsandboxed: bool) -> None:
    """What --allow-unsandboxed does."""
    if unsandboxed:
        from smopd.evaluation.sandbox import permit_unsandboxed

        permit_unsandboxed()

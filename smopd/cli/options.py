"""Options that several verbs share, and the one way a verb prints JSON."""

import json
import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting, e.g. optim.lr=1e-5. May be repeated."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Unsandboxed = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed", help="Run model-written code without isolation where none can be had."
    ),
]


def verb_with(*others: str) -> type[TyperGroup]:
    """A group that is a verb itself, its command named `run`: `smopd eval TARGET`. Only the words `others`
    name further verbs.
    """

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, args if args[:1] and args[0] in others else ["run", *args])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            return (
                "" if name == "run" else name,
                command,
                rest,
            )  # its usage line reads "smopd eval", as it is typed

    return Group


def silent() -> bool:
    """Whether this is one of several processes that a launcher started, and not the first: that one speaks
    for all.
    """
    return "LOCAL_RANK" in os.environ and os.environ.get("RANK", "0") != "0"


def emit(value: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False))


def permit(unsandboxed: bool) -> None:
    """What --allow-unsandboxed does."""
    if unsandboxed:
        from smopd.verify.sandbox import permit_unsandboxed

        permit_unsandboxed()

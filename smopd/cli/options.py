"""Options that several verbs share."""

import math
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption

_set_help = "Override a setting, e.g. optim.lr=1e-5. May be repeated."
_unsandboxed_help = "Run model-written code without isolation where none can be had."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_set_help)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Unsandboxed = Annotated[bool, typer.Option("--allow-unsandboxed", help=_unsandboxed_help)]


def hide_types_of_flags() -> None:
    """Keep typer's help from showing a type, <bool>, behind a flag, which takes no value."""
    option: Any = TyperOption
    if shown := getattr(option, "display_type_rich", None):  # older versions never show it
        option.display_type_rich = lambda self, ctx: None if self.is_flag else shown(self, ctx)


def finite(value: float | None) -> float | None:
    """For options whose bounds nan would pass."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("expected a finite number")
    return value


def verb_with(*others: str) -> type[TyperGroup]:
    """A group that is a verb itself: `smopd eval TARGET` is its command `run`; `others`: further verbs."""

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, args if args[:1] and args[0] in others else ["run", *args])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            # The usage line reads "smopd eval", as it is typed.
            return "" if name == "run" else name, command, rest

    return Group


def permit(unsandboxed: bool) -> None:
    """What --allow-unsandboxed does."""
    if unsandboxed:
        from smopd.verify.sandbox import permit_unsandboxed

        permit_unsandboxed()

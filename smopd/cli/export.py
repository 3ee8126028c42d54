"""`smopd export`: what a run has trained as a plain model or adapter folder, here or on the hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from smopd.cli.options import Json
from smopd.errors import UserError
from smopd.printing import emit, say

HELP = {
    "source": "Run folder, or a PEFT adapter.",
    "out": "Folder for the model; must not exist. May be left out with --push.",
    "checkpoint": "A checkpoint of the run, e.g. step-000100; default the newest.",
    "dtype": "float32, bfloat16 or float16; default as in the run.",
    "adapter_only": "The LoRA adapter alone, as PEFT and vLLM load it, not folded into its base.",
    "push": "Upload it to the Hugging Face hub under this name.",
    "private": "With --push: a new repository is made private.",
}


def export(
    source: Annotated[Path, typer.Argument(metavar="RUN|ADAPTER", help=HELP["source"])],
    out: Annotated[Path | None, typer.Argument(help=HELP["out"])] = None,
    checkpoint: Annotated[str, typer.Option(help=HELP["checkpoint"])] = "",
    dtype: Annotated[str, typer.Option(help=HELP["dtype"])] = "",
    adapter_only: Annotated[bool, typer.Option("--adapter-only", help=HELP["adapter_only"])] = False,
    push: Annotated[str, typer.Option(metavar="OWNER/NAME", help=HELP["push"])] = "",
    private: Annotated[bool, typer.Option("--private", help=HELP["private"])] = False,
    as_json: Json = False,
) -> None:
    """Fold a trained adapter into its base and write a plain Hugging Face model folder with a model card.

    The card says what was trained on what, the accuracies before and after where they are known, how to use
    it, and its limits.

    Examples:

      smopd export runs/quickstart models/pocket-trained --dtype bfloat16

      smopd export runs/qwen3 --adapter-only --push me/qwen3-not-lost
    """
    if out is None and not push:
        raise UserError("export: name a folder for the model, or a place on the hub with --push OWNER/NAME")
    if private and not push:
        raise UserError("--private: goes with --push OWNER/NAME")
    from smopd.progress import track
    from smopd.runs.export import export as write

    stage = "stopped; nothing was written"
    try:
        with TemporaryDirectory(prefix="smopd-") as scratch:
            folder = out or Path(scratch) / push.rpartition("/")[2]
            if push:
                from smopd.runs.push import check_hub
                from smopd.runs.push import push as upload

                with track(f"asking the hub about {push}"):
                    hub = check_hub(push)
            made = write(source, folder, checkpoint, dtype, adapter_only, push, track)
            if push:
                stage = f"stopped while uploading; {push} may be incomplete: the same command goes on"
                with track(f"uploading to {push}"):
                    made["url"] = upload(hub, push, folder, private)
            if out is None:
                made["model"] = push
    except KeyboardInterrupt:
        say(stage, err=True)
        raise typer.Exit(130) from None
    if as_json:
        emit(made)
        return
    say(*([f"exported: {out}"] if out else []), *([f"pushed: {made['url']}"] if push else []))
    if out and not adapter_only:
        say(f"evaluate it: smopd eval {out}")

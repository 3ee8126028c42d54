"""`smopd eval`: accuracy of a model, and `smopd eval compare`: two finished evaluations, paired."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smopd.cli.options import Json, Set, Unsandboxed, permit, verb_with
from smopd.cli.printing import emit, say, show
from smopd.errors import UserError
from smopd.rollout.engine import traits_of

if TYPE_CHECKING:
    from smopd.config import Config

Texts = list[str] | None
TITLE = "Accuracy of a model, with intervals; compare two of them."
eval_app = typer.Typer(cls=verb_with("compare", "inspect"), add_completion=False, help=TITLE)
HELP = {
    "target": "A run folder, a model folder, a hub name, or 'pocket'; for openai only the name.",
    "engine": "auto, hf, vllm (in this process), vllm-http (its servers), or openai: any chat endpoint.",
    "url": "Base URL of a server, for vllm-http and openai. May be repeated.",
    "served_model": "openai: the model's name at the endpoint; default TARGET.",
    "adapter": "A PEFT adapter, or a run folder whose newest checkpoint to use.",
    "base": "Of a run folder: its model as it was before training.",
    "data": "JSONL of ours, LiC's JSON, hf:NAME, or pocket:eval[:N].",
    "views": "Separated by commas: full, concat, sharded, recap, snowball, simulated.",
    "limit": "Only the first N examples.",
    "runs": "Play everything N times; needs --set eval.temperature=1.0.",
    "user_url": "simulated: base URL of the model that plays the user. May be repeated.",
    "user_model": "simulated: that model's name at the endpoint.",
    "verifiers": "Your Python file with @verifier functions. May be repeated.",
    "databases": "database: folder of .sqlite files; default: synthesised ones.",
    "out": "Folder of the evaluation; default in the run folder or under runs/.",
}


def _option(name: str, *words: str, **settings: Any) -> Any:
    return typer.Option(*words, help=HELP[name], **settings)


@eval_app.command("run")
def evaluate(
    target: Annotated[str, typer.Argument(help=HELP["target"])],
    engine: Annotated[str | None, _option("engine")] = None,
    url: Annotated[Texts, _option("url")] = None,
    served_model: Annotated[str | None, _option("served_model")] = None,
    adapter: Annotated[str | None, _option("adapter")] = None,
    base: Annotated[bool, _option("base", "--base")] = False,
    data: Annotated[str | None, _option("data")] = None,
    views: Annotated[str | None, _option("views")] = None,
    limit: Annotated[int | None, _option("limit", min=1)] = None,
    runs: Annotated[int | None, _option("runs", min=1)] = None,
    user_url: Annotated[Texts, _option("user_url")] = None,
    user_model: Annotated[str | None, _option("user_model")] = None,
    verifiers: Annotated[Texts, _option("verifiers")] = None,
    databases: Annotated[str | None, _option("databases")] = None,
    out: Annotated[Path | None, _option("out")] = None,
    allow_unsandboxed: Unsandboxed = False,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Accuracy of a model or a trained run, with 95% intervals and the paired comparison of the views.

    The same command goes on where it was stopped. To compare two finished ones: smopd eval compare A B.

    Examples:

      smopd eval pocket --limit 100

      smopd eval runs/qwen3 --data lic_math.json --views full,concat,sharded,recap,snowball

      smopd eval Qwen/Qwen3-1.7B --data lic_math.json --runs 10 --set eval.temperature=1.0

      smopd eval gpt-4.1-mini --engine openai --url https://api.openai.com --data lic_math.json

    The key of an endpoint is taken from the environment variable OPENAI_API_KEY (--set
    engine.api_key_env=NAME for another).
    """
    from smopd.config import load_config

    chosen_views = [v.strip().lower() for v in views.split(",")] if views is not None else None
    given = {
        "engine.kind": engine, "engine.servers": url or None, "engine.model": served_model, "data.eval": data,
        "eval.views": chosen_views, "eval.limit": limit, "eval.runs": runs, "user.servers": user_url or None,
        "user.model": user_model, "data.verifiers": verifiers or None, "data.databases": databases,
    }  # fmt: skip
    overrides = list(set_ or [])
    overrides += [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
    asked = load_config(None, overrides).engine
    endpoint, run = not traits_of(asked.kind).token_ids, Path(target) / "config.toml"
    # For an endpoint nothing local is looked up, not even a folder of the same name.
    is_run = run.exists() and not endpoint
    pocket = "pocket" if target == "pocket" and not endpoint else None
    if not is_run:
        # As the recipes have it, so that a model is played before and after training by the same engine.
        overrides[:0] = [] if pocket else ["engine.kind=auto"]
        overrides.append(f"model.path={json.dumps(target)}")
    if endpoint and served_model is None and not asked.model:
        overrides.append(f"engine.model={json.dumps(target)}")
    config = load_config(run if is_run else pocket, overrides)
    _check_options(config, url, served_model, adapter, user_url)
    if base and (adapter or not is_run):
        what = "names the model of a run folder before training"
        raise UserError(f"--base: {what}; it goes with a run folder and no --adapter")
    permit(allow_unsandboxed)

    from smopd.cli.progress import track
    from smopd.evaluation.prepare import prepared_examples
    from smopd.evaluation.session import check_evaluation, evaluate_into, identity
    from smopd.models import resolve_adapter
    from smopd.rollout.choice import resolve_engine

    config = resolve_engine(config)
    check_evaluation(config)
    start = config.model.adapter
    wanted = start if base else adapter or (target if is_run else start)
    chosen = resolve_adapter(wanted) if wanted else None
    examples = prepared_examples(config, "eval")
    if out is None:
        from smopd.files import digest

        place = Path(target) / "eval" if is_run and not adapter else Path("runs")
        name = chosen.name if is_run and chosen and not adapter else f"eval-{_slug(target)}"
        name = "base" if base else name
        out = place / f"{name}-{_slug(config.data.eval)}-{digest(identity(config, examples, chosen), 4)}"
    finished = (out / "summary.json").exists()
    try:
        label = chosen.name if chosen else "eval"
        summary = evaluate_into(out, config, examples, label, chosen, track=track)
    except KeyboardInterrupt:
        kept = f"what was played is saved in {out}. The same command goes on from there."
        say(f"stopped; {kept if out.exists() else 'nothing was written'}", err=True)
        raise typer.Exit(130) from None
    say(f"{'was finished before' if finished else 'saved'}: {out}", err=True)
    if as_json:
        model = {"model": config.model.path, "adapter": str(chosen) if chosen else None}
        emit({**model, "data": config.data.eval, "folder": str(out), **summary})
        return
    from smopd.viewer.terminal import summary_table

    show(summary_table(summary))


@eval_app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Folder of a finished evaluation: before.")],
    b: Annotated[Path, typer.Argument(help="Folder of another one of the same data: after.")],
    as_json: Json = False,
) -> None:
    """Two finished evaluations, paired by item, on the items and views both have, whole and by task.

    One run each: the exact McNemar test. Several runs: a bootstrap over items.

    Example: smopd eval compare runs/quickstart/eval/base runs/quickstart/eval/trained
    """
    from smopd.evaluation.metrics import compare_evaluations
    from smopd.viewer.terminal import comparison_table

    result = compare_evaluations(a, b)
    for warning in result["warnings"]:
        say(f"warning: {warning}", err=True)
    emit(result) if as_json else show(comparison_table(result))


@eval_app.command()
def inspect(
    evaluation: Annotated[Path, typer.Argument(help="Folder of a finished evaluation.")],
    out: Annotated[Path, typer.Argument(help="The log: a file that ends in .eval or .json.")],
    as_json: Json = False,
) -> None:
    """A finished evaluation as a log of inspect_ai, to be read with its viewer: inspect view.

    Example: smopd eval inspect runs/quickstart/eval/trained logs/trained.eval
    """
    from smopd.evaluation.inspect_log import write_inspect_log

    made = write_inspect_log(evaluation, out)
    emit({"evaluation": str(evaluation), "log": str(made)}) if as_json else say(f"written: {made}")


def _slug(name: str) -> str:
    """The last part of a path or name, in characters that every file system takes."""
    stem = re.sub(r"\.(jsonl?|gguf)$", "", name.rstrip("/").rpartition("/")[2])
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:40] or "eval"


def _check_options(
    config: "Config", url: Texts, served_model: str | None, adapter: str | None, user_url: Texts
) -> None:
    """An option that would be passed over in silence is an error."""
    kind, traits = config.engine.kind, traits_of(config.engine.kind)
    if url and not traits.remote:
        raise UserError(f"--url: the engine {kind} has no servers; add --engine openai or --engine vllm-http")
    if served_model is not None and traits.token_ids:
        only = "only openai takes a model by its name at an endpoint"
        raise UserError(f"--served-model: the engine is {kind}; {only}")
    if adapter and not traits.token_ids:
        advice = "load the adapter there and give its name with --served-model"
        raise UserError(f"--adapter: an endpoint plays the model it serves; {advice}")
    if user_url and "simulated" not in config.eval.views:
        only = "only the view simulated has a model that plays the user"
        raise UserError(f"--user-url: {only}; add it to --views")

"""The command line: one verb a function. Heavy imports wait until a verb runs, so `--help` answers at once.

Results go to standard output (one JSON object with --json), progress to standard error. What the user can mend ends with a
message and exit code 2, a server that is gone with 3, Ctrl-C with 130 and everything saved.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from smopd.bench.cli import bench_app
from smopd.data.cli import data_app
from smopd.errors import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich",
                  help="Train chat models that don't get lost in conversation.")  # fmt: skip
pocket_app = typer.Typer(no_args_is_help=True, help="The embedded pocket model.")
app.add_typer(bench_app, name="bench")
app.add_typer(data_app, name="data")
app.add_typer(pocket_app, name="pocket")

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting, e.g. optim.lr=1e-5. May be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
MethodOption = Annotated[
    str | None, typer.Option("--method", help="baseline, entropy, outcome or combined (see: smopd methods).")
]
Unsandboxed = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Run model-written code without isolation where none can be had.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and stop.")]


def main() -> None:
    """Entry point: user errors without a traceback."""
    logging.getLogger("smopd").addHandler(logging.StreamHandler())
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries end in an error of ours
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("smopd"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def _emit(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False))


def _show(summary: dict[str, Any]) -> None:
    from rich.console import Console

    from smopd.results import summary_table

    Console(highlight=False).print(summary_table(summary))


def _interrupted(step: int, out: Path) -> None:
    print(f"stopped after step {step}; everything is saved in {out}. The same command goes on from there.", file=sys.stderr)
    raise typer.Exit(130)


@app.command()
def quickstart(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/quickstart"),
    method: MethodOption = None,
    set_: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train the embedded pocket model and show that it is less lost. About five minutes on two CPU cores.

    Examples:

      smopd quickstart

      smopd quickstart --out runs/seed7 --set seed=7
    """
    from smopd.config import load_config, to_toml

    config = load_config("pocket", set_ or [], method)
    if dry_run:
        from smopd.memory import memory_comment

        print(to_toml(config) + memory_comment(config), end="")
        return
    from smopd.results import report_data, report_run
    from smopd.session import quickstart_run
    from smopd.training.loop import Stopped
    from smopd.training.run_folder import RunFolder

    try:
        summaries = quickstart_run(config, RunFolder(out, config))
    except Stopped as stopped:
        _interrupted(stopped.step, out)
    report = report_run(out)
    data = report_data(out)
    if as_json:
        comparisons = [vars(c) for c in data.comparisons]
        _emit({"run": str(out), "report": str(report), **summaries, "comparisons": comparisons})
        return
    from rich.console import Console

    from smopd.viewer import accuracy_table, show_conversation_pair

    console = Console(highlight=False)
    if data.conversations:
        show_conversation_pair(console, data.conversations[0])
    console.print(accuracy_table(data.accuracies, data.comparisons))
    console.print(f"Report: {report.resolve()}\n", markup=False, soft_wrap=True)
    console.print(
        "A real model, on a GPU, with your own files (see docs/data.md for their form):\n"
        "  smopd train qwen3-1.7b --set data.train=train.jsonl --out runs/qwen3\n"
        "  smopd eval runs/qwen3 --data lic_math.json",
        markup=False,
    )


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (pocket, qwen3-1.7b, qwen3-4b, qwen3-8b) or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/RECIPE-METHOD-seedN.")] = None,
    method: MethodOption = None,
    set_: Set = None,
    allow_unsandboxed: Unsandboxed = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train a run, or continue it where it stopped: the same command does both.

    Examples:

      smopd train pocket --method baseline

      smopd train qwen3-4b --set data.train=train.jsonl --set seed=123 --dry-run
    """
    from smopd.config import load_config, to_toml

    config = load_config(recipe, set_ or [], method)
    if dry_run:
        from smopd.memory import memory_comment

        print(to_toml(config) + memory_comment(config), end="")
        return
    out = out or Path("runs") / f"{Path(recipe).stem}-{config.method}-seed{config.seed}"
    from smopd.session import train_run
    from smopd.training.loop import Stopped
    from smopd.training.run_folder import RunFolder

    _permit(allow_unsandboxed)
    folder = RunFolder(out, config)
    try:
        train_run(config, folder)
    except Stopped as stopped:
        _interrupted(stopped.step, out)
    checkpoint = folder.checkpoints()[-1]
    if as_json:
        _emit({"run": str(out), "checkpoint": str(checkpoint), "steps": config.train.steps, "last": folder.metrics()[-1]})
    else:
        print(f"trained: {checkpoint}\nevaluate it: smopd eval {out}")


@app.command("eval")
def evaluate(
    target: Annotated[
        str, typer.Argument(help="A run folder, a model folder, a hub name, or 'pocket'; for openai only the name.")
    ],
    engine: Annotated[
        str | None, typer.Option(help="hf, vllm (in this process), vllm-http (its servers), or openai: any chat endpoint.")
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option(help="Base URL of a server, for vllm-http and openai. May be repeated.")
    ] = None,
    served_model: Annotated[str | None, typer.Option(help="openai: the model's name at the endpoint; default TARGET.")] = None,
    adapter: Annotated[str | None, typer.Option(help="A PEFT adapter, or a run folder whose newest checkpoint to use.")] = None,
    data: Annotated[str | None, typer.Option(help="JSONL of ours, LiC's JSON, or pocket:eval[:N].")] = None,
    views: Annotated[str | None, typer.Option(help="full, sharded, or both separated by a comma.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N examples.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for conversations.jsonl and summary.json; default in the run folder.")
    ] = None,
    allow_unsandboxed: Unsandboxed = False,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Accuracy of a model or a trained run on FULL and SHARDED, with 95% intervals and the paired comparison.

    Examples:

      smopd eval pocket --limit 100

      smopd eval runs/qwen3 --data lic_math.json --views sharded

      smopd eval Qwen/Qwen3-1.7B --data lic_math.json --set model.dtype=bfloat16

      smopd eval gpt-4.1-mini --engine openai --url https://api.openai.com --data lic_math.json

    The key of an endpoint is taken from the environment variable OPENAI_API_KEY (--set engine.api_key_env=NAME for another).
    """
    from smopd.config import load_config

    overrides = list(set_ or [])
    overrides += [f"engine.kind={json.dumps(engine)}"] if engine is not None else []
    overrides += [f"engine.servers={json.dumps(url)}"] if url else []
    overrides += [f"engine.model={json.dumps(served_model)}"] if served_model is not None else []
    overrides += [f"data.eval={json.dumps(data)}"] if data is not None else []
    overrides += [f"eval.views={json.dumps([v.strip().lower() for v in views.split(',')])}"] if views is not None else []
    overrides += [f"eval.limit={limit}"] if limit is not None else []
    asked = load_config(None, overrides).engine
    endpoint, run = asked.kind == "openai", Path(target) / "config.toml"
    is_run = run.exists() and not endpoint  # for an endpoint nothing local is looked up, not even a folder of the same name
    overrides += [] if is_run else [f"model.path={json.dumps(target)}"]
    overrides += [f"engine.model={json.dumps(target)}"] if endpoint and served_model is None and not asked.model else []
    config = load_config(run if is_run else "pocket" if target == "pocket" and not endpoint else None, overrides)
    _check_engine_options(config.engine.kind, url, served_model, adapter)
    _permit(allow_unsandboxed)

    from smopd.evaluation import summarise
    from smopd.models import resolve_adapter
    from smopd.results import save_evaluation
    from smopd.session import eval_examples, run_evaluation

    chosen = resolve_adapter(adapter) if adapter else resolve_adapter(target) if is_run else None
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists and is not empty; nothing was written, choose another --out")
    try:
        outcomes = run_evaluation(config, eval_examples(config), chosen.name if chosen else "eval", chosen)
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    if out is None and is_run and chosen and not adapter:
        out = Path(target) / "eval" / chosen.name
    summary = save_evaluation(out, outcomes) if out else summarise(outcomes)
    if as_json:
        _emit({"model": config.model.path, "adapter": str(chosen) if chosen else None, "data": config.data.eval, **summary})
        return
    _show(summary)


def _permit(unsandboxed: bool) -> None:
    if unsandboxed:
        from smopd.evaluation.sandbox import permit_unsandboxed

        permit_unsandboxed()


def _check_engine_options(kind: str, url: list[str] | None, served_model: str | None, adapter: str | None) -> None:
    """An option that the engine would pass over in silence is an error."""
    if url and kind not in ("vllm-http", "openai"):
        raise UserError(f"--url: the engine {kind} has no servers; add --engine openai or --engine vllm-http")
    if served_model is not None and kind != "openai":
        raise UserError(f"--served-model: the engine is {kind}; only openai takes a model by its name at an endpoint")
    if adapter and kind == "openai":
        raise UserError(
            "--adapter: an endpoint plays the model it serves; load the adapter there and give its name with --served-model"
        )


@app.command()
def report(run: Annotated[Path, typer.Argument(help="Run folder.")], as_json: Json = False) -> None:
    """Write report.html into a run folder from its metrics and evaluations.

    Example: smopd report runs/quickstart
    """
    from smopd.results import report_run

    path = report_run(run)
    _emit({"report": str(path)}) if as_json else print(path)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods that --method takes.

    Example: smopd methods
    """
    from smopd.methods import METHODS

    if as_json:
        _emit({name: {"title": m.title, "summary": m.summary, "settings": dict(m.settings)} for name, m in METHODS.items()})
        return
    for name, method in METHODS.items():
        settings = "  ".join(f"{key}={value}" for key, value in method.settings.items())
        print(f"{name:<10} {settings}\n           {method.summary}")


@pocket_app.command("build")
def pocket_build(
    out: Annotated[Path, typer.Option(help="Folder for the model; must not exist.")] = Path("runs/pocket-model"),
    seed: Annotated[int, typer.Option(help="Another seed, another model.")] = 0,
    count: Annotated[int, typer.Option("--eval", min=1, help="Held-out conversations for the accuracies.")] = 400,
    as_json: Json = False,
) -> None:
    """Rebuild the pocket model from scratch and print its accuracies. Up to 25 minutes on two cores.

    Example: smopd pocket build --out runs/pocket-model
    """
    from smopd.config import load_config
    from smopd.evaluation import summarise
    from smopd.pocket.build import BuildSettings, build
    from smopd.progress import Progress
    from smopd.session import eval_examples, run_evaluation

    if out.exists():
        raise UserError(f"{out}: exists; nothing was written, choose another --out")
    settings = BuildSettings(seed=seed)
    with Progress("building", settings.steps) as progress:
        build(out, settings, lambda step, _, loss: progress.update(step, f"loss {loss:.3f}"))
    config = load_config("pocket", [f"model.path={json.dumps(str(out.resolve()))}", f"data.eval=pocket:eval:{count}"])
    summary = summarise(run_evaluation(config, eval_examples(config), "pocket"))
    _emit({"model": str(out), **summary}) if as_json else _show(summary)


if __name__ == "__main__":
    main()

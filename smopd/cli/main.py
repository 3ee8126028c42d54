"""The command line: one verb a function. Heavy imports wait until a verb runs, so `--help` answers at once.

Results go to standard output (one JSON object with --json), progress to standard error. What the user can
mend ends with a message and exit code 2, a server that is gone with 3, Ctrl-C with 130 and everything saved.
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from smopd.cli.bench import bench_app
from smopd.cli.data import data_app
from smopd.cli.evaluation import eval_app
from smopd.cli.options import Json, Set, Unsandboxed, emit, permit, silent
from smopd.cli.planning import plan
from smopd.cli.study import study_app
from smopd.errors import UserError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich",
                  help="Train chat models that don't get lost in conversation.")  # fmt: skip
pocket_app = typer.Typer(no_args_is_help=True, help="The embedded pocket model.")
app.add_typer(bench_app, name="bench")
app.add_typer(data_app, name="data")
app.add_typer(eval_app, name="eval")
app.add_typer(pocket_app, name="pocket")
app.add_typer(study_app, name="study")
app.command()(plan)

MethodOption = Annotated[
    str | None, typer.Option("--method", help="baseline, entropy, outcome or combined (see: smopd methods).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and stop.")]


def main() -> None:
    """Entry point: user errors without a traceback."""
    if silent():  # what breaks is still told by whoever it breaks in
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for good
    logging.getLogger("smopd").addHandler(logging.NullHandler() if silent() else logging.StreamHandler())
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries end in an error of ours
    try:
        app()
    except UserError as error:
        if not silent():
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


def _interrupted(step: int, out: Path) -> None:
    print(
        f"stopped after step {step}; everything is saved in {out}. The same command goes on from there.",
        file=sys.stderr,
    )
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
        from smopd.planning.memory import memory_comment

        print(to_toml(config) + memory_comment(config), end="")
        return
    from smopd.training.loop import Stopped
    from smopd.training.run_folder import RunFolder
    from smopd.training.runs import quickstart_run
    from smopd.viewer.results import report_data, report_run

    try:
        summaries = quickstart_run(config, RunFolder(out, config))
    except Stopped as stopped:
        _interrupted(stopped.step, out)
    except KeyboardInterrupt:  # in an evaluation
        print(
            f"stopped; everything so far is saved in {out}. The same command goes on from there.",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    report = report_run(out)
    data = report_data(out)
    if as_json:
        comparisons = [vars(c) for c in data.comparisons]
        emit({"run": str(out), "report": str(report), **summaries, "comparisons": comparisons})
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
    recipe: Annotated[
        str, typer.Argument(help="A shipped recipe (pocket, qwen3-1.7b, -4b, -8b, -8b-4bit) or a TOML file.")
    ],
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
        from smopd.planning.memory import memory_comment

        print(to_toml(config) + memory_comment(config), end="")
        return
    out = out or Path("runs") / f"{Path(recipe).stem}-{config.method}-seed{config.seed}"
    from smopd.training.loop import Stopped
    from smopd.training.run_folder import RunFolder
    from smopd.training.runs import train_run

    permit(allow_unsandboxed)
    folder = RunFolder(out, config)
    try:
        train_run(config, folder)
    except Stopped as stopped:
        _interrupted(stopped.step, out)
    checkpoint = folder.checkpoints()[-1]
    if as_json:
        emit(
            {
                "run": str(out),
                "checkpoint": str(checkpoint),
                "steps": config.train.steps,
                "last": folder.metrics()[-1],
            }
        )
    else:
        print(f"trained: {checkpoint}\nevaluate it: smopd eval {out}")


@app.command()
def report(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN|STUDY", help="Run folder, folder of a study, or a study's results.json."),
    ],
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="Write nothing: recompute every number from the raw conversations and compare."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="For a results.json: folder of the report.")] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run (report.html) or of a study (a page, Markdown, LaTeX tables, figures), or
    audit it.

    The audit verifies every reply anew and fails (exit code 1) on the first number that is not what they
    give; all are named.

    Examples:

      smopd report runs/quickstart

      smopd report runs/miniature

      smopd report runs/miniature --audit
    """
    if audit:
        from smopd.cli.progress import track
        from smopd.viewer.results import audit as examine

        problems = examine(path, track)
        if as_json:
            emit({"audited": str(path), "problems": problems})
        else:
            print("\n".join(problems) or f"{path}: every number is what the conversations give")
        raise typer.Exit(1 if problems else 0)
    if path.is_file():
        from smopd.study.publish import publish_results

        pages = [publish_results(path, out)]
    elif out is not None:
        raise UserError(
            "--out: the report of a run or a study is written into its folder; --out is for a results.json"
        )
    elif (path / "study.json").exists() or (path / "studies").is_dir():
        from smopd.cli.progress import track
        from smopd.study.publish import publish
        from smopd.study.run import study_folders

        pages = [publish(folder, track)[1] for folder in study_folders(path)]
    else:
        from smopd.viewer.results import report_run

        pages = [report_run(path)]
    if as_json:
        emit({"report": str(pages[0])} if len(pages) == 1 else {"reports": list(map(str, pages))})
    else:
        print(*pages, sep="\n")


@app.command()
def export(
    source: Annotated[Path, typer.Argument(metavar="RUN|ADAPTER", help="Run folder, or a PEFT adapter.")],
    out: Annotated[Path, typer.Argument(help="Folder for the model; must not exist.")],
    checkpoint: Annotated[
        str, typer.Option(help="A checkpoint of the run, e.g. step-000100; default the newest.")
    ] = "",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16; default as in the run.")] = "",
    as_json: Json = False,
) -> None:
    """Fold a trained adapter into its base and write a plain Hugging Face model folder with a model card.

    Example: smopd export runs/quickstart models/pocket-trained --dtype bfloat16
    """
    from smopd.cli.progress import waiting
    from smopd.training.export import export as write

    try:
        with waiting(f"writing {out}"):
            made = write(source, out, checkpoint, dtype)
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None
    emit(made) if as_json else print(f"exported: {out}\nevaluate it: smopd eval {out}")


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods that --method takes.

    Example: smopd methods
    """
    from smopd.methods import METHODS

    if as_json:
        emit(
            {
                name: {"title": m.title, "summary": m.summary, "settings": dict(m.settings)}
                for name, m in METHODS.items()
            }
        )
        return
    for name, method in METHODS.items():
        settings = "  ".join(f"{key}={value}" for key, value in method.settings.items())
        print(f"{name:<10} {settings}\n           {method.summary}")


@pocket_app.command("build")
def pocket_build(
    out: Annotated[Path, typer.Option(help="Folder for the model; must not exist.")] = Path(
        "runs/pocket-model"
    ),
    seed: Annotated[int, typer.Option(help="Another seed, another model.")] = 0,
    count: Annotated[
        int, typer.Option("--eval", min=1, help="Held-out conversations for the accuracies.")
    ] = 400,
    as_json: Json = False,
) -> None:
    """Rebuild the pocket model from scratch and print its accuracies. Up to 25 minutes on two cores.

    Example: smopd pocket build --out runs/pocket-model
    """
    from smopd.cli.progress import Progress
    from smopd.config import load_config
    from smopd.evaluation.metrics import summarise
    from smopd.evaluation.prepare import prepared_examples
    from smopd.evaluation.session import run_evaluation
    from smopd.pocket.build import BuildSettings, build
    from smopd.viewer.terminal import summary_table

    if out.exists():
        raise UserError(f"{out}: exists; nothing was written, choose another --out")
    settings = BuildSettings(seed=seed)
    with Progress("building", settings.steps) as progress:
        build(out, settings, lambda step, _, loss: progress.update(step, f"loss {loss:.3f}"))
    config = load_config(
        "pocket", [f"model.path={json.dumps(str(out.resolve()))}", f"data.eval=pocket:eval:{count}"]
    )
    summary = summarise(run_evaluation(config, prepared_examples(config, "eval"), "pocket"))
    if as_json:
        emit({"model": str(out), **summary})
        return
    from rich.console import Console

    Console(highlight=False).print(summary_table(summary))


if __name__ == "__main__":
    main()

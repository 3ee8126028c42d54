"""The command line: one verb a function; heavy imports wait until a verb runs. Results go to standard output,
progress to standard error. Exit codes: 2 what the user can mend, 3 a server that is gone, 130 Ctrl-C.
"""

import io
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from smopd.cli.base import base_app
from smopd.cli.chat import chat
from smopd.cli.data import data_app
from smopd.cli.doctor import bench, doctor
from smopd.cli.evaluation import eval_app
from smopd.cli.export import export
from smopd.cli.methods import methods_app
from smopd.cli.options import Json, Set, Unsandboxed, hide_types_of_flags, permit
from smopd.cli.planning import plan
from smopd.cli.study import study_app
from smopd.cli.view import view, watch
from smopd.errors import UserError
from smopd.printing import console, emit, guard_logs, say, show, silent

if TYPE_CHECKING:
    from smopd.config import Config

GOES_ON = "The same command goes on from there."
NEXT = """A real model, on a GPU, with your own files (see docs/data.md for their form):
  smopd train qwen3-1.7b --set data.train=train.jsonl --out runs/qwen3
  smopd eval runs/qwen3 --data lic_math.json"""
TITLE = "Train chat models that don't get lost in conversation."
app = typer.Typer(help=TITLE, no_args_is_help=True, add_completion=False, rich_markup_mode="rich",
                  pretty_exceptions_enable=False)  # fmt: skip
hide_types_of_flags()
app.add_typer(base_app, name="base")
app.add_typer(data_app, name="data")
app.add_typer(eval_app, name="eval")
app.add_typer(methods_app, name="methods")
app.add_typer(study_app, name="study")
app.command()(chat)
app.command()(doctor)
_anything = {"ignore_unknown_options": True, "allow_extra_args": True}
app.command(hidden=True, add_help_option=False, context_settings=_anything)(bench)
app.command()(export)
app.command()(plan)
app.command()(view)
app.command()(watch)

_method_help = "baseline, entropy, outcome or combined (see: smopd methods)."
_recipe_help = "A shipped recipe (pocket, qwen3-1.7b, -4b, -8b, -8b-4bit), a TOML file, or a run to continue."
_report_help = "Run folder, folder of a study, or a study's results.json."
_audit_help = "Write nothing: recompute every number from the raw conversations and compare."
MethodOption = Annotated[str | None, typer.Option("--method", help=_method_help)]
World = Literal["pocket", "everyday"]
WORLDS: dict[World, tuple[str, str]] = {
    "pocket": ("pocket", "runs/quickstart"), "everyday": ("smollm2", "runs/real")
}  # fmt: skip
_dry_run_help = "Check and print the resolved settings, and stop."
DryRun = Annotated[bool, typer.Option("--dry-run", help=_dry_run_help)]


def main() -> None:
    """Entry point: user errors without a traceback."""
    if silent():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for good
    log = logging.getLogger("smopd")
    log.handlers = [logging.NullHandler() if silent() else logging.StreamHandler()]
    log.setLevel(logging.INFO)
    guard_logs()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries end in an error of ours
    for stream in (sys.stdout, sys.stderr):  # a terminal of another encoding shows what it can
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except UserError as error:
        if not silent():
            say(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # whoever read our output has seen enough: smopd methods | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if not error.filename:
            raise
        say(f"error: {error.filename}: {error.strerror}", err=True)
        sys.exit(UserError.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(version("smopd"))
        raise typer.Exit


Version = typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")


@app.callback()
def _options(version: Annotated[bool, Version] = False) -> None:
    pass


def _interrupted(message: str) -> NoReturn:
    say(message, err=True)
    raise typer.Exit(130)


def _config(recipe: str, overrides: list[str] | None, method: str | None, dry_run: bool) -> "Config":
    from smopd.config import load_config, to_toml

    config = load_config(recipe, overrides or [], method)
    if dry_run:
        from smopd.config import plan_of
        from smopd.config_io import flatten
        from smopd.planning.memory import memory_comment
        from smopd.rollout.choice import engine_line
        from smopd.training.check import absent, check_training
        from smopd.verify import load_verifiers

        load_verifiers(config.data.verifiers)
        check_training(config, missing := absent(config))
        plan = "".join(f"# {line}\n" for line in plan_of(config).describe())
        engine = f"# {line}\n" if (line := engine_line(config)) else ""
        values = flatten(config.model_dump())
        away = "".join(f"# {key}: {values[key]} is not on this machine: not checked\n" for key in missing)
        comments = f"# The plan of {config.method}:\n{plan}{engine}{away}{memory_comment(config)}"
        say(f"{to_toml(config)}\n{comments}", end="")
        raise typer.Exit
    return config


@app.command()
def quickstart(
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default runs/quickstart or runs/real.")
    ] = None,
    world: Annotated[World, typer.Option(help="pocket: the embedded model; everyday: SmolLM2.")] = "pocket",
    method: MethodOption = None,
    set_: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train a small model and show that it is less lost: before, after, and a report.

    The embedded pocket model takes about five minutes on two CPU cores. The everyday world is for a real
    language model, SmolLM2-135M, whose weights come from the Python registry: about 25 minutes.

    Examples:
      smopd quickstart --out runs/seed7 --set seed=7
      smopd quickstart --world everyday
    """
    recipe, default = WORLDS[world]
    out = out or Path(default)
    config = _config(recipe, set_, method, dry_run)
    from smopd.progress import track, training_note
    from smopd.runs.writer import RunFolder
    from smopd.training.interrupt import Stopped
    from smopd.training.runs import quickstart_run
    from smopd.viewer.results import report_run

    folder = RunFolder(out, config)
    try:
        if world == "everyday":
            from smopd.training.base import find_or_build_base

            find_or_build_base(config, track, training_note)
        summaries = quickstart_run(config, folder, track, training_note)
    except Stopped as stopped:
        _interrupted(f"stopped after step {stopped.step}; everything is saved in {out}. {GOES_ON}")
    except KeyboardInterrupt:  # in an evaluation
        _interrupted(f"stopped; everything so far is saved in {out}. {GOES_ON}")
    report, data = report_run(out)
    if as_json:
        comparisons = [c._asdict() for c in data.comparisons]
        emit({"run": str(out), "report": str(report), **summaries, "comparisons": comparisons})
        return
    from smopd.viewer.terminal import accuracy_table, show_conversation_pair

    if data.conversations:
        show_conversation_pair(console(), data.conversations[0])
    show(accuracy_table(data.accuracies, data.comparisons, data.notices))
    say(f"Report: {report.resolve()}\n\n{NEXT}")


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE|RUN", help=_recipe_help)],
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/RECIPE-METHOD-seedN.")] = None,
    method: MethodOption = None,
    set_: Set = None,
    allow_unsandboxed: Unsandboxed = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train a run, or continue it where it stopped: the same command does both, and so does its run folder.

    Examples:

      smopd train qwen3-4b --method baseline --set data.train=train.jsonl --set seed=123 --dry-run

      smopd train runs/qwen3-4b-baseline-seed123
    """
    from smopd.runs.layout import CONFIG, is_run

    if is_run(Path(recipe)):
        recipe, out = str(Path(recipe) / CONFIG), out or Path(recipe)
    config = _config(recipe, set_, method, dry_run)
    out = out or Path("runs") / f"{Path(recipe).stem}-{config.method}-seed{config.seed}"
    from smopd.progress import not_judged, track, training_note
    from smopd.runs.writer import RunFolder
    from smopd.training.interrupt import Stopped
    from smopd.training.runs import train_run

    permit(allow_unsandboxed)
    folder = RunFolder(out, config)
    try:
        train_run(config, folder, track, training_note)
    except Stopped as stopped:
        _interrupted(f"stopped after step {stopped.step}; everything is saved in {out}. {GOES_ON}")
    checkpoint, rows = str(folder.checkpoints()[-1]), folder.metrics()
    lacking = not_judged(rows)
    if as_json:
        steps, last = config.train.steps, rows[-1]
        found = {"last": last, "not_judged": lacking, "warnings": folder.warnings()}
        emit({"run": str(out), "checkpoint": checkpoint, "steps": steps, **found})
    else:
        if lacking:
            counts = ", ".join(f"{count} {status}" for status, count in lacking.items())
            say(f"replies in training that counted as not correct: {counts}")
        if warned := folder.warnings():
            said = f"warnings of this run, in {folder.warnings_file} and the report"
            say("\n  ".join([f"{said}:", *(f"step {row['step']}: {row['warning']}" for row in warned)]))
        say(f"trained: {checkpoint}\nevaluate it: smopd eval {out}")


@app.command()
def report(
    path: Annotated[Path, typer.Argument(metavar="RUN|STUDY", help=_report_help)],
    audit: Annotated[bool, typer.Option("--audit", help=_audit_help)] = False,
    out: Annotated[Path | None, typer.Option(help="For a results.json: folder of the report.")] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run (report.html) or of a study (page, Markdown, LaTeX, figures), or audit it.

    A run's report has every evaluation of it, wherever smopd eval put it, and says what is missing.

    The audit verifies every reply anew, names every number they do not give, and then fails (exit code 1).

    Example: smopd report runs/quickstart --audit
    """
    if not path.exists():
        raise UserError(f"{path}: no such folder or file; expected a run, a study or a results.json")
    if audit:
        from smopd.progress import track
        from smopd.viewer.results import audit as examine

        problems = examine(path, track)
        if as_json:
            emit({"audited": str(path), "problems": problems})
        else:
            say("\n".join(problems) or f"{path}: every number is what the conversations give")
        raise typer.Exit(1 if problems else 0)
    if path.is_file():
        from smopd.progress import track
        from smopd.study.report import publish_results

        pages = [publish_results(path, out, track)]
    elif out is not None:
        where = "the report of a run or a study is written into its folder"
        raise UserError(f"--out: {where}; --out is for a results.json")
    elif (path / "study.json").exists() or (path / "studies").is_dir():
        from smopd.progress import track
        from smopd.study.report import publish
        from smopd.study.run import study_folders

        pages = [publish(folder, track)[1] for folder in study_folders(path)]
    else:
        from smopd.progress import late
        from smopd.viewer.results import report_run

        with late(f"reading {path}"):
            page, data = report_run(path)
        if as_json:
            emit({"report": str(page), "missing": [one._asdict() for one in data.missing]})
            return
        from smopd.viewer.terminal import accuracy_table

        say(page)
        if data.accuracies:
            show(accuracy_table(data.accuracies, data.comparisons, data.notices))
        for what, command in data.missing:
            say(f"missing: {what}", f"  {command}")
        return
    if as_json:
        emit({"report": str(pages[0])} if len(pages) == 1 else {"reports": list(map(str, pages))})
    else:
        say(*pages)

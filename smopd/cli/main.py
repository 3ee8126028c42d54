"""The command line: one function per verb; heavy imports wait until a verb runs. Results go to standard
output, progress to standard error. Exit codes: 2 user error, 3 lost server, 130 Ctrl-C.
"""

import io
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from smopd.cli.chat import chat
from smopd.cli.data import data_app
from smopd.cli.evaluation import eval_app
from smopd.cli.machine import bench, doctor, plan
from smopd.cli.methods import methods_app
from smopd.cli.models import base_app, export
from smopd.cli.options import GOES_ON, Arg, Json, Opt, Set, Unsandboxed, stoppable
from smopd.cli.study import study_app
from smopd.cli.view import report, view, watch
from smopd.config import Config, load_config, plan_of
from smopd.config_io import flatten, to_toml
from smopd.errors import UserError
from smopd.models.adapter_files import checkpoints
from smopd.printing import console, guard_logs, output, say, silent
from smopd.progress import not_judged, track, training_note
from smopd.rollout.engine import engine_line
from smopd.runs.layout import CONFIG, WARNINGS, is_run
from smopd.runs.writer import RunFolder
from smopd.training.runs import find_or_build_base, quickstart_run, train_run
from smopd.verify import load_verifiers
from smopd.viewer.terminal import accuracy_table, show_conversation_pair

NEXT = """A real model, on a GPU, with your own files (see docs/data.md for their form):
  smopd train qwen3-1.7b --set data.train=train.jsonl --out runs/qwen3
  smopd eval runs/qwen3 --data lic_math.json"""
TITLE = "Train chat models that don't get lost in conversation."
app = typer.Typer(help=TITLE, no_args_is_help=True, add_completion=False, rich_markup_mode="rich",
                  pretty_exceptions_enable=False)  # fmt: skip
app.add_typer(base_app, name="base")
app.add_typer(data_app, name="data")
app.add_typer(eval_app, name="eval")
app.add_typer(methods_app, name="methods")
app.add_typer(study_app, name="study")
_anything = {"ignore_unknown_options": True, "allow_extra_args": True}
app.command(hidden=True, add_help_option=False, context_settings=_anything)(bench)
for verb in (chat, doctor, export, plan, view, watch):
    app.command()(verb)

_method_help = "baseline, entropy, outcome or combined (see: smopd methods)."
_recipe_help = "A shipped recipe (pocket, qwen3-1.7b, -4b, -8b, -8b-4bit), a TOML file, or a run to resume."
MethodOption = Annotated[str | None, Opt("--method", help=_method_help)]
DryRun = Annotated[bool, Opt("--dry-run", help="Check and print the resolved settings; train nothing.")]
World = Literal["pocket", "everyday"]


def main() -> None:
    """Run the command line; user errors have no traceback."""
    if silent():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for good
    log = logging.getLogger("smopd")
    log.handlers = [logging.NullHandler() if silent() else logging.StreamHandler()]
    log.setLevel(logging.INFO)
    guard_logs()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # after its retries smopd reports the error
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # do not fail on text of another encoding
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except UserError as error:
        if not silent():
            say(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader closed the pipe: smopd methods | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if not error.filename:
            raise
        say(f"error: {error.filename}: {error.strerror}", err=True)
        sys.exit(UserError.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        say(version("smopd"))
        raise typer.Exit


Version = Opt("--version", callback=_version, is_eager=True, help="Print the version and stop.")


@app.callback()
def _options(version: Annotated[bool, Version] = False) -> None:
    pass


def _show_plan(config: Config) -> NoReturn:
    """Check and print the settings, and end here."""
    from smopd.planning.memory import memory_comment
    from smopd.training.check import check_dry_run

    load_verifiers(config.data.verifiers)
    missing = check_dry_run(config)
    values, engine = flatten(config.model_dump()), engine_line(config)
    lines = [f"The plan of {config.method}:", *plan_of(config).describe(), *([engine] if engine else [])]
    lines += [f"{key}: {values[key]} is not on this machine: not checked" for key in missing]
    comments = "".join(f"# {line}\n" for line in lines)
    say(f"{to_toml(config)}\n{comments}{memory_comment(config)}", end="")
    raise typer.Exit


@app.command()
def quickstart(
    out: Annotated[Path | None, Opt(help="Run folder; default runs/quickstart or runs/real.")] = None,
    world: Annotated[World, Opt(help="pocket: the embedded model; everyday: SmolLM2.")] = "pocket",
    method: MethodOption = None,
    set_: Set = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train a small model, evaluate it before and after, and write a report.

    The embedded pocket model takes about five minutes on two CPU cores. The everyday world is for a real
    language model, SmolLM2-135M, whose weights come from the Python registry: about 12 minutes.

    Examples:
      smopd quickstart --out runs/seed7 --set seed=7
      smopd quickstart --world everyday
    """
    recipe, default = ("pocket", "quickstart") if world == "pocket" else ("smollm2", "real")
    out = out or Path("runs") / default
    config = load_config(recipe, set_ or [], method)
    folder = RunFolder(out, config)
    if dry_run:
        _show_plan(config)
    from smopd.viewer.results import report_run

    with stoppable(f"; everything so far is saved in {out}. {GOES_ON}"):
        if world == "everyday":
            find_or_build_base(config, track, training_note)
        summaries = quickstart_run(config, folder, track, training_note)
    page, data = report_run(out)
    if data.conversations and not as_json:
        show_conversation_pair(console(), data.conversations[0])
    table = accuracy_table(data.accuracies, data.comparisons, data.notices)
    comparisons = [c._asdict() for c in data.comparisons]
    facts = {"run": str(out), "report": str(page), **summaries, "comparisons": comparisons}
    output(as_json, facts, table, f"Report: {page.resolve()}\n\n{NEXT}")


@app.command()
def train(
    recipe: Annotated[str, Arg(metavar="RECIPE|RUN", help=_recipe_help)],
    out: Annotated[Path | None, Opt(help="Run folder; default runs/RECIPE-METHOD-seedN.")] = None,
    method: MethodOption = None,
    set_: Set = None,
    allow_unsandboxed: Unsandboxed = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Train a run, or resume it with the same command or by naming its run folder.

    Examples:
      smopd train qwen3-4b --method baseline --set data.train=train.jsonl --set seed=123 --dry-run
      smopd train runs/qwen3-4b-baseline-seed123
    """
    if is_run(Path(recipe)):
        recipe, out = str(Path(recipe) / CONFIG), out or Path(recipe)
    config = load_config(recipe, set_ or [], method)
    out = out or Path("runs") / f"{Path(recipe).stem}-{config.method}-seed{config.seed}"
    folder = RunFolder(out, config)
    if dry_run:
        _show_plan(config)

    def describe_saved() -> str:
        saved = f"; everything is saved in {out}. {GOES_ON}"
        return saved if checkpoints(out) else " before the first checkpoint"

    with stoppable(describe_saved):
        train_run(config, folder, track, training_note)
    checkpoint, rows, warned = str(checkpoints(out)[-1]), folder.metrics(), folder.warnings()
    lacking, lines = not_judged(rows), []
    if lacking:
        counts = ", ".join(f"{count} {status}" for status, count in lacking.items())
        lines.append(f"replies in training that counted as not correct: {counts}")
    if warned:
        lines.append(f"warnings of this run, in {out / WARNINGS} and the report:")
        lines += [f"  step {row['step']}: {row['warning']}" for row in warned]
    outcome = {"last": rows[-1], "not_judged": lacking, "warnings": warned}
    facts = {"run": str(out), "checkpoint": checkpoint, "steps": config.train.steps, **outcome}
    output(as_json, facts, *lines, f"trained: {checkpoint}\nevaluate it: smopd eval {out}")


app.command()(report)

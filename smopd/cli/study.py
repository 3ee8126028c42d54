"""`smopd study`: a grid of runs, the design's power, the token log's calibration, gradient shares."""

from datetime import timedelta
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from smopd.cli.options import GOES_ON, Arg, Checkpoint, Json, Opt, Set, finite, stoppable, verb_with
from smopd.errors import UserError
from smopd.files import require_writable, write_json
from smopd.printing import output, say
from smopd.progress import console, delayed_status, track
from smopd.runs.layout import GRADIENTS, METRICS

if TYPE_CHECKING:
    from smopd.study.run import Scheduler, StudyFolder, StudyJob

ABOUT = "Run a grid of runs with statistics, and its controls."
study_app = typer.Typer(cls=verb_with("calibration", "gradients", "list", "power"), help=ABOUT)
STUDY = "A study file (TOML), or a shipped study (smopd study list)."
OUT = "Folder; default runs/PLACE, as the study says. Studies may share one."
JOBS = "Cells to run in parallel, each on its own GPU where there are several."
COMMANDS = "Print the commands of unfinished cells, for a cluster's scheduler; run nothing."
LOGGED = "Run folder with a token log."
SEED_SD = "Run-to-run standard deviation of an arm's accuracy, in points."
DISCORDANCE = "Spread over items of the difference of two arms, see docs/study.md."


@study_app.command("run")
def study(
    source: Annotated[str, Arg(metavar="STUDY", help=STUDY)],
    out: Annotated[Path | None, Opt(help=OUT)] = None,
    jobs: Annotated[int, Opt(min=1, help=JOBS)] = 1,
    retries: Annotated[int, Opt(min=0, help="Retries of a failed cell.")] = 1,
    print_commands: Annotated[bool, Opt("--print-commands", help=COMMANDS)] = False,
    set_: Set = None,
    dry_run: Annotated[bool, Opt("--dry-run", help="Show the grid and its state; run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run every unfinished cell of a study, then write its report. Run the same command to resume.

    Other verbs: smopd study list | power | calibration RUN | gradients RUN.

    Examples:
      smopd study miniature --jobs 2
      smopd study my-study.toml --dry-run
      smopd study paper-ablation --set data.train=train.jsonl --set data.eval=lic_math.json --print-commands > commands.txt

    A cell is an ordinary run: --print-commands prints a command for each, to be run in any order on any
    machine that sees the folder; afterwards the same command without it only collects. Exit code 1: some
    cells failed; they are named.
    """  # noqa: E501
    from smopd.study.plan import check_files, load_study
    from smopd.study.run import Scheduler, StudyFolder, command_lines

    plan = load_study(source, set_ or [])
    folder = StudyFolder(out or Path("runs") / plan.place, plan)
    listed = folder.jobs()
    if dry_run:
        _show_grid(folder, listed, as_json)
        return
    check_files(plan)
    if print_commands:
        folder.prepare()
        lines = command_lines(listed)
        output(as_json, {"commands": lines}, "\n".join(lines))
        return
    with folder.lock():
        folder.prepare()
        scheduler = Scheduler(folder, listed, jobs, retries)

        def describe_saved() -> str:
            counts = f"{sum(job.done for job in listed)} of {len(listed)} cells done"
            return f" with {counts}; everything is saved in {folder.path}. {GOES_ON}"

        with stoppable(describe_saved):
            _run(scheduler)
        with stoppable(" before the report was written; the same command writes it."):
            _finish(folder, listed, as_json)


def _run(scheduler: "Scheduler") -> None:
    from smopd.study.run import time_left

    reported: set[str] = set()
    with track("study", len(scheduler.jobs), eta=False, every=30.0) as update:

        def report(scheduler: "Scheduler") -> None:
            left = time_left(scheduler)
            parts = [f"ETA {timedelta(seconds=round(left))}"] if left is not None else []
            failed = sum(bool(job.error) for job in scheduler.jobs)
            parts += [f"{failed} failed"] if failed else []
            parts += [f"{job.label} {job.progress:.0%}" for job, *_ in scheduler.running.values()]
            update(sum(job.done for job in scheduler.jobs), "  ".join(parts))
            for job in scheduler.jobs:
                if job.error and (line := f"{job.label}: {job.error}") not in reported:
                    reported.add(line)
                    console.print(f"failed: {line}", soft_wrap=True)

        scheduler.run(report)


def _finish(folder: "StudyFolder", listed: list["StudyJob"], as_json: bool) -> None:
    from smopd.study.report import publish
    from smopd.study.table_parts import TableBuilder
    from smopd.study.tables import verdict_lines

    failed = [job for job in listed if not job.done]
    if len(failed) == len(listed):
        raise UserError("every cell failed:\n  " + "\n  ".join(f"{job.label}: {job.error}" for job in failed))
    results, page = publish(folder, track)
    states = {"done": len(listed) - len(failed), "failed": {job.label: job.error for job in failed}}
    facts = {"study": folder.study.name, "folder": str(folder.path), "report": str(page), **states}
    verdicts = verdict_lines(TableBuilder(results), results.missing)
    output(as_json, facts | {"verdicts": verdicts}, "\n".join(verdicts), f"\nReport: {page.resolve()}")
    for job in failed:
        say(f"failed: {job.label}: {job.error}", err=True)
    if failed:
        say(f"{len(failed)} of {len(listed)} cells failed; the same command tries them again.", err=True)
        raise typer.Exit(1)


def _show_grid(folder: "StudyFolder", listed: list["StudyJob"], as_json: bool) -> None:
    plan = folder.study
    states = {}
    for job in listed:
        states[job.label] = "done" if job.done else "begun" if (job.folder / METRICS).exists() else "open"
    facts = {"study": plan.name, "folder": str(folder.path), "cells": states}
    size = f"{len(plan.cells)} cells in {folder.path}, against {plan.reference!r}\n"
    lines = [f"  {state:<6} {label}" for label, state in states.items()]
    output(as_json, facts, f"{plan.name}: {plan.title}", size, *lines)


@study_app.command("list")
def list_studies(as_json: Json = False) -> None:
    """List the shipped studies.

    Example: smopd study list
    """
    from smopd.study.plan import load_study, study_names

    studies = {name: load_study(name) for name in study_names()}
    facts = {n: {"title": s.title, "cells": len(s.cells), "about": s.about} for n, s in studies.items()}
    heads = {f"{name:<17} {len(s.cells):>3} cells  ": s.title for name, s in studies.items()}
    lines = [fill(title, 80, initial_indent=h, subsequent_indent=" " * len(h)) for h, title in heads.items()]
    output(as_json, facts, *lines)


@study_app.command()
def power(
    items: Annotated[int, Opt(min=2, max=10**9, help="Evaluation items, the same for all arms.")] = 200,
    seeds: Annotated[int, Opt(min=1, max=10**6, help="Runs of each arm.")] = 3,
    seed_sd: Annotated[float, Opt(callback=finite, min=0, max=100, help=SEED_SD)] = 0.6,
    discordance: Annotated[float, Opt(callback=finite, min=0, max=1, help=DISCORDANCE)] = 0.2,
    as_json: Json = False,
) -> None:
    """Compute the smallest difference a design can detect, with 80% power at a two-sided level of 5%.

    Example: smopd study power --items 200 --seeds 3 --seed-sd 0.6
    """
    from smopd.study.statistics import detectable, sentence

    if not seed_sd and not discordance:
        raise UserError("--seed-sd and --discordance: both are 0, so that any difference would be found")
    points = 100 * detectable(items, seeds, seed_sd=seed_sd / 100, discordance=discordance)
    text = sentence(items, seeds, seed_sd=seed_sd / 100, discordance=discordance)
    design = {"items": items, "seeds": seeds, "seed_sd": seed_sd, "discordance": discordance}
    output(as_json, {**design, "points": points}, text)


@study_app.command()
def calibration(run: Annotated[Path, Arg(help=LOGGED)], as_json: Json = False) -> None:
    """Measure whether low student entropy predicts that the clean teacher agrees: AUROC and reliability.

    This reads the run's token log, which runs with train.save_tokens=true write.

    Example: smopd study calibration runs/pocket-entropy-seed42
    """
    from smopd.study import calibration as tokens

    with delayed_status(f"reading {run / 'tokens'}"):
        stats = tokens.calibration(tokens.load_tokens(run))
    if stats is None:
        raise UserError(f"{run}: the token log holds no middle reply")
    area, low, high = (_decimals(stats[name]) for name in ("auroc", "auroc_low", "auroc_high"))
    head = (
        f"{stats['tokens']} tokens of middle replies, {stats['rollouts']} rollouts; the clean teacher agrees "
        f"with {stats['agreement']:.1%}\nAUROC of entropy for disagreement: {area} [{low}, {high}]\n"
        f"calibration error against the teacher: {_decimals(stats['ece'])}\n\n"
        "entropy, nats      tokens  agreement  divergence"
    )
    line = "{low:7.4f} - {high:6.4f} {count:8}  {agreement:9.1%}  {divergence:10.4f}"
    output(as_json, stats, head, *(line.format(**row) for row in stats["by_entropy"]))


def _decimals(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


@study_app.command()
def gradients(
    run: Annotated[Path, Arg(help="Run folder.")],
    examples: Annotated[int, Opt(min=1, help="Training examples to play.")] = 32,
    checkpoint: Checkpoint = "",
    as_json: Json = False,
) -> None:
    """Measure how much of the middle turns' gradient belongs to tokens that the mask drops, and every term's
    gradient norm. The result is saved as gradients.json in the run folder.

    Example: smopd study gradients runs/pocket-entropy-seed42
    """
    from smopd.study.gradients import gradient_shares

    require_writable(run / GRADIENTS)
    shares = gradient_shares(run, examples, checkpoint, track)
    write_json(run / GRADIENTS, shares)
    angle = "undefined" if shares["cosine"] is None else f"{shares['cosine']:.3f}"
    text = (
        "{checkpoint}, {examples} rollouts, {tokens} middle tokens, keep {keep}\n"
        "dropped: {tokens_dropped:.1%} of the tokens, {divergence_dropped:.1%} of the divergence, "
        "{norm_share_dropped:.1%} of the gradient norm\n"
        "norms: kept {norm_kept:.4g}, dropped {norm_dropped:.4g}; cosine between them "
    )
    norms = ", ".join(f"{name} {norm:.4g}" for name, norm in shares["terms"].items())
    output(as_json, shares, text.format(**shares) + angle, f"norms by term: {norms}")

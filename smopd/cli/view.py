"""`smopd view`: pages about runs; `smopd report`: a run or study; `smopd watch`: a run while it trains."""

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from smopd.cli.options import Arg, Json, Opt
from smopd.errors import UserError
from smopd.printing import console, emit, output, say
from smopd.progress import delayed_status, track
from smopd.viewer.pages.serve import keep_calling, serve_folder
from smopd.viewer.terminal import accuracy_table

_paths_help = "Run folders, a study, evaluations, or a folder of runs. Several are compared."
_serve_help = "Serve the pages on 127.0.0.1 until Ctrl-C, e.g. for a browser behind ssh -L."
_live_help = "Rebuild the pages every N seconds until Ctrl-C; an open page reloads itself."
_report_help = "Run folder, folder of a study, or a study's results.json."
_audit_help = "Write nothing: recompute every number from the raw conversations and compare."


def view(
    paths: Annotated[list[Path], Arg(metavar="RUN|STUDY|FOLDER...", help=_paths_help)],
    out: Annotated[Path | None, Opt(help="Folder of the pages; default view/ in the first folder.")] = None,
    serve: Annotated[bool, Opt("--serve", help=_serve_help)] = False,
    port: Annotated[int, Opt(min=0, max=65535, help="Port for --serve; 0 picks a free one.")] = 8756,
    live: Annotated[float, Opt(min=0, metavar="SECONDS", help=_live_help)] = 0,
    as_json: Json = False,
) -> None:
    """Write pages about runs: every conversation, every token, curves, what improved and why.

    They are plain files: open index.html in a browser, or copy the folder anywhere. No server, no network.

    Examples:
      smopd view runs/quickstart
      smopd view runs/seed1 runs/seed2 --out pages
      smopd view runs/qwen3 --serve --live 30
    """
    from smopd.viewer.pages.build import make_view

    page = make_view(paths, out, live, track)
    if not serve and not live:
        output(as_json, {"view": str(page)}, page.resolve().as_uri())
        return

    def remake() -> None:
        try:
            make_view(paths, out, live)
        except UserError as error:  # the run may be half written: try again next time
            say(f"not rebuilt: {error}", err=True)

    with serve_folder(page.parent, port) if serve else nullcontext() as address:
        shown = address or page.resolve().as_uri()
        output(as_json, {"view": str(page), "address": address}, shown, "Ctrl-C ends it.")
        try:
            keep_calling(remake if live else lambda: None, live or 3600)
        except KeyboardInterrupt:
            say("ended", err=True)


def watch(
    run: Annotated[Path, Arg(metavar="RUN", help="Run folder.")],
    every: Annotated[float, Opt(min=0.2, metavar="SECONDS", help="Seconds between updates.")] = 2,
    once: Annotated[bool, Opt("--once", help="Print the current state once.")] = False,
    as_json: Json = False,
) -> None:
    """Watch a run while it trains: curves, the last conversation token by token, throughput, time left.

    It only reads the folder; Ctrl-C stops watching, not the run. --json prints the current state once.

    Example: smopd watch runs/quickstart
    """
    from smopd.viewer.watch import frame, status

    if as_json:
        emit(status(run))
        return
    terminal = console()
    if terminal.is_terminal and not once:
        live = Live(frame(run, terminal.width), console=terminal, auto_refresh=False, screen=True)
        with suppress(KeyboardInterrupt), live:
            live.refresh()
            while (now := status(run))["step"] < now["steps"]:
                time.sleep(every)
                live.update(frame(run, terminal.width), refresh=True)
    terminal.print(frame(run, terminal.width))


def report(
    path: Annotated[Path, Arg(metavar="RUN|STUDY", help=_report_help)],
    audit: Annotated[bool, Opt("--audit", help=_audit_help)] = False,
    out: Annotated[Path | None, Opt(help="For a results.json: folder of the report.")] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run (report.html) or of a study (page, Markdown, LaTeX, figures), or audit it.

    A run's report has every evaluation of it, wherever smopd eval put it, and says what is missing. The audit
    verifies every reply again, names every number that differs, and then fails (exit code 1).

    Example: smopd report runs/quickstart --audit
    """
    if not path.exists():
        raise UserError(f"{path}: no such folder or file; expected a run, a study or a results.json")
    from smopd.viewer import results

    if audit:
        problems = results.audit(path, track)
        clean = f"{path}: every number is what the conversations give"
        output(as_json, {"audited": str(path), "problems": problems}, *problems or [clean])
        raise typer.Exit(1 if problems else 0)
    of_study = (path / "study.json").exists() or (path / "studies").is_dir()
    if out is not None and not path.is_file():
        where = "the report of a run or a study is written into its folder"
        raise UserError(f"--out: {where}; --out is for a results.json")
    if not path.is_file() and not of_study:
        with delayed_status(f"reading {path}"):
            page, data = results.report_run(path)
        parts: list[Any] = [str(page)]
        if data.accuracies:
            parts.append(accuracy_table(data.accuracies, data.comparisons, data.notices))
        parts += [f"missing: {what}\n  {command}" for what, command in data.missing]
        output(as_json, {"report": str(page), "missing": [one._asdict() for one in data.missing]}, *parts)
        return
    from smopd.study.report import publish, publish_results
    from smopd.study.run import study_folders

    if of_study:
        pages = [publish(folder, track)[1] for folder in study_folders(path)]
    else:
        pages = [publish_results(path, out, track)]
    names = [str(page) for page in pages]
    output(as_json, {"report": names[0]} if len(names) == 1 else {"reports": names}, *names)

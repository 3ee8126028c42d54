"""`smopd view`: pages to look at runs, conversations and tokens; `smopd watch`: a run while it trains."""

from pathlib import Path
from typing import Annotated

import typer

from smopd.cli.options import Json
from smopd.errors import UserError
from smopd.printing import console, emit, say

_paths_help = "Run folders, a study, evaluations, or a folder of runs. Several are laid over each other."
_out_help = "Folder of the pages; default view/ in the first folder."
_serve_help = "Serve them at 127.0.0.1 until Ctrl-C, for a browser on another machine over ssh -L."
_port_help = "Of --serve; 0: any that is free."
_live_help = "Make them anew every so many seconds, until Ctrl-C; the open page follows."


def view(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN|STUDY|FOLDER...", help=_paths_help)],
    out: Annotated[Path | None, typer.Option(help=_out_help)] = None,
    serve: Annotated[bool, typer.Option("--serve", help=_serve_help)] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help=_port_help)] = 8756,
    live: Annotated[float, typer.Option(min=0, metavar="SECONDS", help=_live_help)] = 0,
    as_json: Json = False,
) -> None:
    """Write pages to look at runs: every conversation, every token, curves, what improved and why.

    They are plain files: open index.html in a browser, or copy the folder anywhere. No server, no network.

    Examples:

      smopd view runs/quickstart

      smopd view runs/seed1 runs/seed2 --out pages

      smopd view runs/qwen3 --serve --live 30
    """
    from smopd.progress import track
    from smopd.viewer.look.build import make_view

    page = make_view(paths, out, live, track)
    if not serve and not live:
        emit({"view": str(page)}) if as_json else say(f"{page.resolve().as_uri()}")
        return
    from smopd.viewer.look.serve import keep_showing

    def remake() -> None:
        try:
            make_view(paths, out, live)
        except UserError as error:  # a run that is just being written: the next look will do
            say(f"not made anew: {error}", err=True)

    with keep_showing(page.parent, port if serve else None, remake if live else None, live) as (
        address,
        wait,
    ):
        where = address or page.resolve().as_uri()
        if as_json:
            emit({"view": str(page), "address": address})
        else:
            say(f"{where}\nCtrl-C ends it.")
        try:
            wait()
        except KeyboardInterrupt:
            say("ended", err=True)


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Between two looks.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Look once and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Watch a run while it trains: curves, the last conversation token by token, throughput, time left.

    It reads the folder alone; Ctrl-C ends the watching, not the run. With --json: one look, as numbers.

    Example: smopd watch runs/quickstart
    """
    from smopd.viewer.watch import frame, status

    if as_json:
        emit(status(run))
        return
    terminal = console()
    if once or not terminal.is_terminal:
        terminal.print(frame(run, terminal.width))
        return
    import time

    from rich.live import Live

    try:
        with Live(frame(run, terminal.width), console=terminal, auto_refresh=False, screen=True) as live:
            live.refresh()
            while (now := status(run))["step"] < now["steps"]:
                time.sleep(every)
                live.update(frame(run, terminal.width), refresh=True)
    except KeyboardInterrupt:
        pass
    terminal.print(frame(run, terminal.width))

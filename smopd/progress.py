"""Progress on standard error: a live line with ETA on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from threading import Timer
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from smopd import printing
from smopd.tracking import Update

console = printing.console(stderr=True, quiet=printing.silent())
LATE = 1.0  # seconds until quick work is announced


@contextmanager
def track(what: str, total: int = 0, done: int = 0, eta: bool = True, every: float = 10) -> Iterator[Update]:
    """A `Track` on stderr: a spinner or a bar; without a terminal, a line `every` so many seconds."""
    if total and console.is_terminal:
        # This fits into 80 columns; narrower, the numbers would be cut.
        templates = ("{task.description}", "{task.fields[note]}")
        name, note = (TextColumn(text, markup=False) for text in templates)
        left = (TextColumn("ETA"), TimeRemainingColumn()) if eta else ()
        columns = (name, BarColumn(bar_width=10), MofNCompleteColumn(), *left, note)
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(what, total=total, completed=done, note="")
            yield lambda done, note="": bar.update(task, completed=done, note=note)
    elif total:
        yield _plain_lines(what, total, done, eta, every)
    else:
        if not console.is_terminal:
            console.print(what)
        with console.status(Text(what)) if console.is_terminal else nullcontext():
            yield lambda done, note="": None


def _plain_lines(what: str, total: int, first: int, eta: bool, every: float) -> Update:
    began = last = time.monotonic()

    def update(done: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < every and not (done == total and eta):
            return
        last = now
        rate, left = (done - first) / max(1e-9, now - began), ""
        if eta and rate and done < total:
            left = f", {timedelta(seconds=round((total - done) / rate))} left"
        console.print(f"{what} {done}/{total}{left}  {note}".rstrip(), soft_wrap=True)

    return update


@contextmanager
def delayed_status(what: str) -> Iterator[None]:
    """Announce work that is usually instant: without a terminal, only if it takes more than a second."""
    timer = Timer(LATE, console.print, [what], {"soft_wrap": True})
    timer.daemon = True
    if not console.is_terminal:
        timer.start()
    try:
        with console.status(Text(what)) if console.is_terminal else nullcontext():
            yield
    finally:
        timer.cancel()


def not_judged(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Count the replies of these steps without an answer, with a timeout or with a verifier error."""
    statuses = ("no_answer", "timeout", "error")
    counts = {status: sum(row.get(f"verdict/{status}") or 0 for row in rows) for status in statuses}
    return {status: count for status, count in counts.items() if count}


def training_note(row: dict[str, Any]) -> str:
    shown = [f"loss {row['loss']:.3f}"]
    if row.get("outcome") is not None:
        shown.append(f"correct {row['outcome']:.0%}")
    if console.is_terminal and console.width < 100:
        return "  ".join(shown)
    shown += [", ".join(f"{count} {status}" for status, count in not_judged([row]).items())]
    clipped = {key.partition("/")[2]: row[key] for key in row if key.startswith("clipped/")}
    if parts := [f"{term} {share:.0%}" for term, share in clipped.items() if share is not None]:
        shown.append(f"clipped {', '.join(parts)}")
    return "  ".join(part for part in [*shown, f"{row['seconds/step']:.1f} s/step"] if part)

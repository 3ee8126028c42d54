"""Progress on standard error: a live line with ETA on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from threading import Timer
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from smopd import printing
from smopd.tracking import Update

console = printing.console(stderr=True, quiet=printing.silent())
LATE = 1.0  # seconds after which quick work says what it is


class Progress:
    """One counted piece of work; plain lines every `plain_every` s. Without `eta` the note says the rest."""

    def __init__(
        self, what: str, total: int, done: int = 0, plain_every: float = 10, eta: bool = True
    ) -> None:
        self.what, self.total, self.done, self.eta, self.plain_every = what, total, done, eta, plain_every
        self._began, self._last, self._first = time.monotonic(), time.monotonic(), done
        self._bar: RichProgress | None = None

    def __enter__(self) -> "Progress":
        if console.is_terminal:
            # Eighty columns hold all of it; a squeezed number tells nobody anything.
            templates = ("{task.description}", "{task.fields[note]}")
            what, note = (TextColumn(text, markup=False) for text in templates)
            left = (TextColumn("ETA"), TimeRemainingColumn()) if self.eta else ()
            columns = (what, BarColumn(bar_width=10), MofNCompleteColumn(), *left, note)
            self._bar = RichProgress(*columns, console=console)
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total, completed=self.done, note="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        self.done = done
        if self._bar:
            self._bar.update(self._task, completed=done, note=note)
            return
        now = time.monotonic()
        if now - self._last < self.plain_every and not (done == self.total and self.eta):
            return
        self._last = now
        rate, left = (done - self._first) / max(1e-9, now - self._began), ""
        if self.eta and rate and done < self.total:
            left = f", {timedelta(seconds=round((self.total - done) / rate))} left"
        line = f"{self.what} {done}/{self.total}{left}  {note}".rstrip()
        console.print(line, soft_wrap=True)


@contextmanager
def track(what: str, total: int = 0, done: int = 0, eta: bool = True) -> Iterator[Update]:
    """A `Track` on standard error: a spinner for work of unknown length, else counted progress."""
    if total:
        with Progress(what, total, done, eta=eta) as progress:
            yield progress.update
        return
    if not console.is_terminal:
        console.print(what)
    with console.status(Text(what)) if console.is_terminal else nullcontext():
        yield lambda done, note="": None


@contextmanager
def delayed_status(what: str) -> Iterator[None]:
    """Work that is mostly over at once: without a terminal it says what it is only after a second."""
    if console.is_terminal:
        with console.status(Text(what)):
            yield
        return
    timer = Timer(LATE, console.print, [what], {"soft_wrap": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def not_judged(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many replies of these steps gave no answer, or none in time, or made the verifier fail."""
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

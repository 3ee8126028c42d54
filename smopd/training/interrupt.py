"""Ctrl-C (or SIGTERM of a scheduler, or SIGHUP of a terminal that closes) at moments that lose nothing."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)  # not every system has it


class Stopped(Exception):
    """Ctrl-C: everything up to `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class Interrupt:
    """The signals that came; `asked`: the run should stop."""

    def __init__(self, at_once: bool) -> None:
        self.at_once, self.asked = at_once, False
        self._depth, self._pending = 0, False

    def handle(self, number: int, frame: Any) -> None:
        if number == HANGUP:
            _leave_terminal()
        self.asked = self._pending = True
        self._raise()

    def _raise(self) -> None:
        if self._pending and self.at_once and not self._depth:
            self._pending = False
            raise KeyboardInterrupt

    @contextmanager
    def protect(self, stopping: bool = False) -> Iterator[None]:
        """Inside, a signal waits for the end of the block. While `stopping`, a further one changes nothing: a
        terminal that closes often sends two.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._pending = self._pending and not stopping
        self._raise()


@contextmanager
def interruptible(at_once: bool = True) -> Iterator[Interrupt]:
    """A signal raises KeyboardInterrupt, except under `protect`; with `at_once` off it is only noted."""
    interrupt = Interrupt(at_once)
    numbers = [signal.SIGINT, signal.SIGTERM]
    if HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN:  # ignored: started with nohup
        numbers.append(HANGUP)
    try:
        old = {number: signal.signal(number, interrupt.handle) for number in numbers}
    except ValueError:  # not the main thread: the caller's handlers stay
        old = {}
    try:
        yield interrupt
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)


def _leave_terminal() -> None:
    """Print to nowhere from now on if the terminal is gone: an error here would lose the checkpoint."""
    for descriptor in (1, 2):
        try:
            device = stat.S_ISCHR(os.fstat(descriptor).st_mode)
            if device and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
        except OSError:  # closed: nothing is printed there
            continue

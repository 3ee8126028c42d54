"""Handle Ctrl-C, a scheduler's SIGTERM and a closing terminal's SIGHUP without losing work."""

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none


class Stopped(Exception):
    """Raised after Ctrl-C; everything up to `step` is saved."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped after step {step}")
        self.step = step


class Interrupt:
    def __init__(self, at_once: bool) -> None:
        self.at_once, self.asked = at_once, False  # asked: the run should stop
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
        """Delay signals to the end of the block; drop them if `stopping`: closing terminals may send two."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._pending = self._pending and not stopping
        self._raise()


@contextmanager
def interruptible(at_once: bool = True) -> Iterator[Interrupt]:
    """Let signals raise KeyboardInterrupt, except under `protect`; without `at_once` only set `asked`."""
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
    """Redirect output to /dev/null if the terminal is gone: an error here would lose the checkpoint."""
    for descriptor in (1, 2):
        try:
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
        except OSError:  # closed: nothing is printed there
            continue

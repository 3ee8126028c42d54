"""Ctrl-C (and SIGTERM, which schedulers send) at moments that lose nothing."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupt:
    """The signals that came; `asked`: the run should stop."""

    def __init__(self, at_once: bool) -> None:
        self.at_once, self.asked = at_once, False
        self._depth, self._pending = 0, False

    def handle(self, number: int, frame: Any) -> None:
        """The signal's handler."""
        self.asked = self._pending = True
        self._raise()

    def _raise(self) -> None:
        if self._pending and self.at_once and not self._depth:
            self._pending = False
            raise KeyboardInterrupt

    @contextmanager
    def protect(self) -> Iterator[None]:
        """Inside, a signal waits for the end of the block."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        self._raise()


@contextmanager
def interruptible(at_once: bool = True) -> Iterator[Interrupt]:
    """A signal raises KeyboardInterrupt, except under `protect`; with `at_once` off it is only noted."""
    interrupt = Interrupt(at_once)
    try:
        old = {s: signal.signal(s, interrupt.handle) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller's handlers stay
        old = {}
    try:
        yield interrupt
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)

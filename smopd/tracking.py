"""The protocol of progress: `with track("training", 100) as update: update(step, "loss 0.1")`."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Update(Protocol):
    """Reports how many of the total are done, with a short note."""

    def __call__(self, done: int, note: str = "") -> None: ...


class Track(Protocol):
    """Starts counted work; `total` 0: of unknown length; `eta` False: the note tells the time left."""

    def __call__(
        self, what: str, total: int = 0, done: int = 0, eta: bool = True
    ) -> AbstractContextManager[Update]: ...


@contextmanager
def quiet(what: str, total: int = 0, done: int = 0, eta: bool = True) -> Iterator[Update]:
    yield lambda done, note="": None

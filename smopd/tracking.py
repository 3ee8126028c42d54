"""How long work says how far it is, without knowing who listens: a bar of the command line, or nobody.

Whatever takes long takes a `track`: `with track("training", 100) as update: update(step, "loss 0.1")`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Update(Protocol):
    """Says how many of the total are done, and a few words beside."""

    def __call__(self, done: int, note: str = "") -> None: ...


class Track(Protocol):
    """Begins counted work; `total` 0: of unknown length; `eta` False: the note tells the time left."""

    def __call__(
        self, what: str, total: int = 0, done: int = 0, eta: bool = True
    ) -> AbstractContextManager[Update]: ...


@contextmanager
def quiet(what: str, total: int = 0, done: int = 0, eta: bool = True) -> Iterator[Update]:
    yield lambda done, note="": None

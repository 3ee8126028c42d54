"""The points of the training loop at which a caller may look on or ask for something."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smopd.training.loop import Trainer


class Hooks:
    """Does nothing. A subclass overrides what it needs, and sets what it asks for.

    With several processes the methods run on each; what one of them asks for happens on all.
    """

    stop = False  # whether the run should end after this step, with everything saved
    save = False  # whether a checkpoint is wanted after this step
    evaluate = False  # whether an evaluation is wanted after this step, in a run that evaluates at all

    def begin(self, trainer: "Trainer") -> None:
        """Before the first step of this start; model, optimizer and folder are ready."""

    def step_begin(self, step: int) -> None:
        """Before a step; the first one of a run is 1."""

    def step_end(self, row: dict[str, Any]) -> None:
        """After a step, with its metrics."""

    def saved(self, step: int) -> None:
        """After a checkpoint was written."""

    def evaluated(self, step: int, accuracy: dict[str, float]) -> None:
        """After an evaluation in the run, with the accuracy by view; empty but on the first process."""

    def end(self) -> None:
        """After the last step and its checkpoint; not after Ctrl-C or an error."""

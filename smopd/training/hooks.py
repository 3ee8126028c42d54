"""The points of the training loop at which a caller may observe it or request something."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smopd.training.loop import Trainer


class Hooks:
    """Does nothing, for subclassing. Methods run on every process; a flag set on one takes effect on all."""

    stop = False  # end the run after this step, with everything saved
    save = False  # write a checkpoint after this step
    evaluate = False  # evaluate after this step, if the run evaluates at all

    def begin(self, trainer: "Trainer") -> None:
        """Called before the first step after a start or resume; model, optimizer and folder are ready."""

    def step_begin(self, step: int) -> None:
        """Called before a step; steps count from 1."""

    def step_end(self, row: dict[str, Any]) -> None:
        """Called after a step, with its metrics."""

    def saved(self, step: int) -> None:
        """Called after a checkpoint was written."""

    def evaluated(self, step: int, accuracy: dict[str, float]) -> None:
        """Called after an evaluation, with the accuracy by view (empty except on the first process)."""

    def end(self) -> None:
        """Called after the last step and its checkpoint, but not after Ctrl-C or an error."""

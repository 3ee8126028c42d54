"""Errors that users can fix: printed without a traceback, with their own exit codes."""


class UserError(ValueError):
    """Something outside the program is wrong; the message names the place and the remedy."""

    exit_code = 2


class EngineLost(UserError):
    """The engine that samples replies is gone; the run is intact, and the same command resumes it."""

    exit_code = 3


class PartError(UserError):
    """A part of a method failed: `place` is its file and line, `part` names the part and its term."""

    def __init__(self, place: str, part: str, problem: str) -> None:
        super().__init__(f"{', '.join(filter(None, (place, part)))}: {problem}")
        self.place, self.part, self.problem = place, part, problem

    def within(self, whole: str, place: str) -> "PartError":
        """The same error, as a part of `whole`, unless that is only another name for the part."""
        if self.part.startswith("term ") or whole.startswith("`"):
            return self
        part = whole if whole.endswith(self.part) else f"{whole}, {self.part}"
        return PartError(self.place or place, part, self.problem)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out; on a CPU, torch has no exception class for that."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "allocate memory" in str(error)

"""Errors that are the user's to mend: printed without a traceback, with an exit code of their own."""


class UserError(ValueError):
    """Something outside the program is wrong: the message names the place and says what to do."""

    exit_code = 2


class EngineLost(UserError):
    """Whatever samples replies is gone; the run is sound, and the same command continues it later."""

    exit_code = 3


class PartError(UserError):
    """A part of a method went wrong: `place` is its file and line, `part` says which part of which term."""

    def __init__(self, place: str, part: str, problem: str) -> None:
        super().__init__(f"{', '.join(filter(None, (place, part)))}: {problem}")
        self.place, self.part, self.problem = place, part, problem

    def within(self, whole: str, place: str) -> "PartError":
        """The same, told as a part of something larger, which may be a name for the part itself."""
        if self.part.startswith("term ") or whole.startswith("`"):
            return self
        part = whole if whole.endswith(self.part) else f"{whole}, {self.part}"
        return PartError(self.place or place, part, self.problem)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; on a CPU torch has no class of its own for that."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "allocate memory" in str(error)

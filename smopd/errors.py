"""Errors that are the user's to mend. The command line prints them without a traceback and exits with their
code.
"""


class UserError(ValueError):
    """Something outside the program is wrong: the message names the place and says what to do."""

    exit_code = 2


class EngineLost(UserError):
    """Whatever samples replies is gone; the run is sound, and the same command continues it later."""

    exit_code = 3

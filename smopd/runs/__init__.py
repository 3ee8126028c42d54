"""A run is a folder: `Run` reads it, `smopd.runs.writer` writes it, `smopd.runs.target` says what an argument
that may be a run is.
"""

from smopd.runs.layout import is_run as is_run
from smopd.runs.run import Run as Run

"""A run is a folder: `Run` reads it, `smopd.runs.writer` writes it."""

from smopd.runs.layout import is_run as is_run
from smopd.runs.run import Run as Run

"""Evidence: grids of runs, statistics over seeds and items, tables, figures, the report and its audit.

Names are looked up when they are first asked for: the command line's `--help` must not wait for scipy.
"""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

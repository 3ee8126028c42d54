"""Evidence: grids of runs, statistics over seeds and items, tables, figures, the report and its audit."""

from smopd.lazy import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)

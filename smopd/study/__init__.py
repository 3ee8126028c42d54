"""Studies: grids of runs, statistics over seeds and items, tables, figures, the report and its audit."""

from smopd.study.comparison import Comparison, compare, family
from smopd.study.statistics import clustered, design, detectable, holm, item_test, mean_sd, power_of

from smopd.study.statistics import welch, welch_interval  # isort: skip

__all__ = [
    "Comparison", "clustered", "compare", "design", "detectable", "family", "holm", "item_test", "mean_sd",
    "power_of", "welch", "welch_interval",
]  # fmt: skip

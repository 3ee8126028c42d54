"""Studies: grids of runs, statistics over seeds and items, tables, figures, the report and its audit."""

from smopd.study.comparison import Comparison, compare, family
from smopd.study.power import design, detectable, power_of
from smopd.study.statistics import clustered, holm, item_test, mean_sd, welch, welch_interval

__all__ = [
    "Comparison", "clustered", "compare", "design", "detectable", "family", "holm", "item_test", "mean_sd",
    "power_of", "welch", "welch_interval",
]  # fmt: skip

"""Evidence: grids of runs, statistics over seeds and items, tables, figures, the report and its audit.

Names are looked up when they are first asked for: the command line's `--help` must not wait for scipy.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.study.comparison import Comparison, compare, family
    from smopd.study.power import design, detectable, power_of
    from smopd.study.statistics import clustered, holm, item_test, mean_sd, welch, welch_interval

__all__ = [
    "Comparison", "clustered", "compare", "design", "detectable", "family", "holm", "item_test", "mean_sd",
    "power_of", "welch", "welch_interval",
]  # fmt: skip
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.study.comparison": ("Comparison", "compare", "family"),
        "smopd.study.power": ("design", "detectable", "power_of"),
        "smopd.study.statistics": ("clustered", "holm", "item_test", "mean_sd", "welch", "welch_interval"),
    },
)

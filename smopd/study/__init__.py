"""Evidence: grids of runs, statistics over seeds and items, tables, figures, the report and its audit.

Names are looked up when they are first asked for: the command line's `--help` must not wait for scipy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smopd.study.comparison import Comparison, compare, family
    from smopd.study.power import design, detectable, power_of
    from smopd.study.statistics import clustered, holm, item_test, mean_sd, welch, welch_interval

__all__ = [
    "Comparison", "clustered", "compare", "design", "detectable", "family", "holm", "item_test", "mean_sd",
    "power_of", "welch", "welch_interval",
]  # fmt: skip

_HOMES = {
    "Comparison": "comparison", "compare": "comparison", "family": "comparison",
    "design": "power", "detectable": "power", "power_of": "power",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'statistics')}"), name)

"""Replies: engines behind one small protocol, and the driver that plays conversations with them.

Imported when first asked for: what an engine can do (`smopd.rollout.engine`) is wanted where torch is not.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.rollout.driver import Conversation, Driver, Turn
    from smopd.rollout.engine import Engine, Sampled, Sampling, Session, Stop
    from smopd.rollout.hf import HFEngine
    from smopd.rollout.stock import StockEngine

__all__ = [
    "Conversation", "Driver", "Engine", "HFEngine", "Sampled", "Sampling", "Session", "StockEngine", "Stop",
    "Turn",
]  # fmt: skip

__getattr__ = lazy_names(
    __name__,
    {
        "smopd.rollout.driver": ("Conversation", "Driver", "Turn"),
        "smopd.rollout.engine": ("Engine", "Sampled", "Sampling", "Session", "Stop"),
        "smopd.rollout.hf": ("HFEngine",),
        "smopd.rollout.stock": ("StockEngine",),
    },
)

"""Replies: engines behind one small protocol, and the driver that plays conversations with them.

Names are looked up when they are first asked for: a method's declaration needs `Play`, not transformers.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.rollout.driver import Conversation, Driver, Turn
    from smopd.rollout.engine import Engine, Sampling, Session, Stop
    from smopd.rollout.hf import HFEngine
    from smopd.rollout.play import Peers, Play, Reply, Rollout
    from smopd.rollout.stock import StockEngine

__all__ = [
    "Conversation", "Driver", "Engine", "HFEngine", "Peers", "Play", "Reply", "Rollout", "Sampling", "Session",
    "StockEngine", "Stop", "Turn",
]  # fmt: skip
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.rollout.driver": ("Conversation", "Driver", "Turn"),
        "smopd.rollout.engine": ("Engine", "Sampling", "Session", "Stop"),
        "smopd.rollout.hf": ("HFEngine",),
        "smopd.rollout.play": ("Peers", "Play", "Reply", "Rollout"),
        "smopd.rollout.stock": ("StockEngine",),
    },
)

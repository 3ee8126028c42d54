"""Replies: engines behind one small protocol, and the driver that plays conversations with them."""

from smopd.rollout.driver import Conversation, Driver, Turn
from smopd.rollout.engine import Engine, Sampled, Sampling, Session, Stop
from smopd.rollout.hf import HFEngine
from smopd.rollout.stock import StockEngine

__all__ = [
    "Conversation", "Driver", "Engine", "HFEngine", "Sampled", "Sampling", "Session", "StockEngine", "Stop",
    "Turn",
]  # fmt: skip

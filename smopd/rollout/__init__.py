"""Replies: engines behind one small protocol, and the driver that plays conversations with them."""

from smopd.rollout.driver import Conversation, Driver, Turn
from smopd.rollout.engine import Engine, Reply, Sampling, Session, Stop
from smopd.rollout.hf import HFEngine
from smopd.rollout.stock import StockEngine

__all__ = [
    "Conversation",
    "Driver",
    "Engine",
    "HFEngine",
    "Reply",
    "Sampling",
    "Session",
    "StockEngine",
    "Stop",
    "Turn",
]

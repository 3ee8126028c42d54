"""Replies: engines behind one small protocol, and the driver that plays conversations with them."""

from smopd.rollout.driver import Conversation, Driver, Turn
from smopd.rollout.engine import Engine, Reply, Sampling, Stop
from smopd.rollout.hf import HFEngine

__all__ = ["Conversation", "Driver", "Engine", "HFEngine", "Reply", "Sampling", "Stop", "Turn"]

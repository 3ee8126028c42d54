"""Replies: engines behind one small protocol, and the driver that plays conversations with them."""

from smopd.rollout.driver import Conversation, Driver, Turn
from smopd.rollout.engine import Engine, Sampled, Sampling, Session, Stop
from smopd.rollout.play import Peers, Play, Reply, Rollout

__all__ = [
    "Conversation", "Driver", "Engine", "Peers", "Play", "Reply", "Rollout", "Sampled", "Sampling",
    "Session", "Stop", "Turn",
]  # fmt: skip

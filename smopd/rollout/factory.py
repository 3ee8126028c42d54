"""Another name of `smopd.rollout.assembly.make_engine`, for callers that have not moved yet."""

from smopd.rollout.assembly import make_engine

__all__ = ["make_engine"]

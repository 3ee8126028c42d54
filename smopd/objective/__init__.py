"""One scalar: token selection, turn weights, clip, and the loss of a rollout."""

from smopd.objective.loss import RolloutLoss, rollout_loss
from smopd.objective.selection import keep_mask, masked, reliability, select, turn_weights

__all__ = ["RolloutLoss", "keep_mask", "masked", "reliability", "rollout_loss", "select", "turn_weights"]

"""Training: the loop, the stages of a step, metrics and warnings."""

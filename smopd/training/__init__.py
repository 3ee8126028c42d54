"""The update: loop, EMA teacher, checkpoints, metrics."""

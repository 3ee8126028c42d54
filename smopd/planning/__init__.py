"""Estimate what a run needs before it runs: memory by part, tokens, operations, minutes."""

"""What a run will need, before it runs: memory by part, tokens, operations, minutes. Nothing is computed."""

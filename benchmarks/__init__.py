"""Benchmarks for contributors: `python -m benchmarks` in a checkout. The package does not contain them."""

"""How fast and how large: benchmarks of the head, of the model passes and of a whole scoring step, against
other paths.
"""

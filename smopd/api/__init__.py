"""The Python interface to train, evaluate and inspect runs: a layer over the training loop."""

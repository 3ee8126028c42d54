"""What `import smopd` offers to train, evaluate and look at runs: a layer over the one training loop."""

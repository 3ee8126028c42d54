"""What `import smopd` offers: training, evaluating and looking at runs from Python.

It is a layer over the one training loop. What is passed as Python objects (examples, a verifier, a method, a
model) is written into the run folder first, so that a run stays one folder that goes on by itself.
"""

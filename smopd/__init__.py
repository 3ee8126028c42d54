"""smopd: multi-turn on-policy self-distillation for chat models that don't get lost in conversation.

    run = smopd.train("pocket", method="entropy", steps=40)
    smopd.evaluate(run)

The packages follow data through one training step: data, chat, rollout, scoring, objective, training. Then
come evaluation, methods (named settings), viewer, and pocket (the embedded model). The public names are
documented in docs/python.md and imported on first use.
"""

import os

from smopd.lazy import lazy_names

# Some virtual machines advertise AMX but kill processes that use it, as torch's bfloat16 matmuls do. torch
# reads this when it first computes; set another value if AMX works on your machine.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Idle OpenMP threads sleep: beside other processes, spinning is many times slower. Read at torch import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__, __all__ = lazy_names(__name__, __file__)

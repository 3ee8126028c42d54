"""smopd: multi-turn on-policy self-distillation for chat models that don't get lost in conversation.

    run = smopd.train("pocket", method="entropy", steps=40)
    smopd.evaluate(run)

The packages are the stages of one training step, in the order data flows through them: data, chat, rollout,
scoring, objective, training; then evaluation, methods (settings that have a name), viewer, and pocket, the
embedded model. The names offered here are documented in docs/python.md; each is imported when it is first
asked for.
"""

import os

from smopd.lazy import lazy_names

# Some virtual machines advertise AMX and kill a process that uses it, as torch's bfloat16 products do. It is
# read when torch first computes; whoever knows that the tiles work sets another value.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
# Threads that wait go to sleep: beside any other process spinning ones are many times slower. It is read when
# torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__, __all__ = lazy_names(__name__, __file__)

"""How long Python and torch take to issue one decoder layer's work while sampling.

    python tools/issue_time.py

A layer 32 wide has next to nothing to compute, so what its sampling takes is the issuing. CPU time of this
machine, whose processor may be slower or faster than one beside a GPU; there each kernel's launch comes on
top. Prints milliseconds a layer with the adapter beside the projections and with it merged;
smopd/planning/plan.py has round numbers near them.
"""

import time
from contextlib import nullcontext
from statistics import median

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from smopd.models.adapters import attach, merged
from smopd.rollout.engine import Sampling
from smopd.rollout.hf import HFEngine
from smopd.settings import LoraSettings

LAYERS, TOKENS, REPETITIONS = 28, 32, 7


def milliseconds(fold: bool) -> float:
    """Of one layer and one sampled token of a batch of eight."""
    shape = Qwen3Config(
        hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        num_hidden_layers=LAYERS, vocab_size=64,
    )  # fmt: skip
    model = attach(Qwen3ForCausalLM(shape), LoraSettings(r=4, alpha=4), 1)
    engine = HFEngine(model, [])
    taken = []
    with merged(model) if fold else nullcontext():
        for _ in range(REPETITIONS):
            began = time.process_time()
            engine.generate([[1, 2, 3]] * 8, list(range(8)), Sampling(1.0, TOKENS, 1.0, 0))
            taken.append((time.process_time() - began) / TOKENS / LAYERS)
    return 1000 * median(taken)


if __name__ == "__main__":
    torch.set_num_threads(1)
    beside, folded = milliseconds(False), milliseconds(True)
    print(f"adapter beside: {beside:.2f} ms a layer; merged: {folded:.2f} ms a layer")

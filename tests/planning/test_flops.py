"""Planned operations of scoring against torch's own count."""

import pytest
import torch
from planning.bodies import body, branching
from torch.utils.flop_counter import FlopCounterMode

from smopd.config import load_config
from smopd.models.adapters import attach, teacher_weights
from smopd.planning.load import Load, pack
from smopd.planning.plan import scoring_flops
from smopd.planning.shapes import shape_of
from smopd.scoring import token_divergence
from smopd.scoring.passes import body_and_head, reply_hidden

CLOSE = 0.1  # attention's own products left out, on both sides: the counter does not know the CPU's kernel


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("rank", [8, 256])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_operations_of_both_passes_and_the_head(name, rank, recompute):
    set_ = [f"lora.r={rank}", f"train.recompute={str(recompute).lower()}"]
    config = load_config("qwen3-1.7b", set_)
    model = attach(body(name, 128, layers=6, vocabulary=600), config.lora, 1).train()
    if recompute:
        model.get_base_model().gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    sequences = branching()
    packed, rows = pack(sequences, 10**6), sum(len(reply) for _, reply in sequences)
    load = Load(1, 1, student=packed, teacher=packed, scored=rows, products=3.0 * rows)
    decoder, head = body_and_head(model)
    tokens = torch.tensor([token for _, reply in sequences for token in reply])
    with FlopCounterMode(display=False) as counter:
        with torch.no_grad(), teacher_weights(model, "ema"):
            teacher = reply_hidden(decoder, sequences)
        student = reply_hidden(decoder, sequences)
        token_divergence(student, teacher, head, tokens).divergence.sum().backward()
    planned = scoring_flops(config, shape_of(model.config), load)
    assert planned == pytest.approx(counter.get_total_flops(), rel=CLOSE)

"""Planned operations against torch's own count, part by part."""

from contextlib import nullcontext

import pytest
import torch
from planning.bodies import body, branching
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from smopd.models.adapters import attach, teacher_weights
from smopd.planning import flops
from smopd.planning.load import pack
from smopd.planning.shapes import shape_of
from smopd.scoring import Decision, gjs, kernel, token_divergence
from smopd.scoring.passes import body_and_head, reply_hidden
from smopd.settings import LoraSettings

CLOSE = 0.1  # so that a formula that is off by 15% fails, whichever way the rest errs
aten = torch.ops.aten
# torch counts the attention of GPUs; the CPU's kernel does the same products.
CPU_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *rest, out_shape=None, **more: (
        sdpa_flop_count(q, k, v)
    ),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, q, k, v, *rest, out_shape=None, **more: sdpa_backward_flop_count(grad, q, k, v)
    ),
}


def counted(function) -> float:
    with FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION) as counter:
        function()
    return counter.get_total_flops()


# Which part dominates: the base's products, the adapters', attention's.
CASES = {
    "base": {"rank": 8, "scale": 1, "narrow": False},
    "adapters": {"rank": 256, "scale": 1, "narrow": False},
    "attention": {"rank": 2, "scale": 6, "narrow": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_passes(name, case):
    rank, scale, narrow = CASES[case]["rank"], CASES[case]["scale"], CASES[case]["narrow"]
    torch.manual_seed(0)
    width = 64 if narrow else 128
    model = attach(body(name, width, layers=2, narrow=narrow), LoraSettings(r=rank, alpha=rank), 1).train()
    shape, decoder = shape_of(model.config), body_and_head(model)[0]
    sequences = branching(scale=scale)
    packed = pack(sequences, 10**6)
    adapter = shape.adapter(rank)
    forward, backward = (
        f(shape, adapter, packed.tokens, packed.pairs) for f in (flops.forward, flops.backward)
    )
    if case == "attention":
        assert flops.attention(shape, packed.pairs) > 0.4 * forward.total
    if case == "adapters":
        assert forward.adapter > 0.5 * forward.base
    kept = []
    for teacher in (True, False):
        with teacher_weights(model, "ema") if teacher else nullcontext():
            found = counted(lambda: kept.append(reply_hidden(decoder, sequences, row_tokens=10**6)))
            assert forward.total == pytest.approx(found, rel=CLOSE)
    assert backward.total == pytest.approx(counted(lambda: kept[-1].square().sum().backward()), rel=CLOSE)


def test_recomputing_is_one_forward_pass_more():
    model = attach(body("qwen3", 128), LoraSettings(r=8, alpha=8), 1).train()
    model.get_base_model().gradient_checkpointing_enable(
        gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    shape, sequences = shape_of(model.config), branching()
    packed = pack(sequences, 10**6)
    hidden = reply_hidden(body_and_head(model)[0], sequences)
    planned = [
        f(shape, shape.adapter(8), packed.tokens, packed.pairs) for f in (flops.forward, flops.backward)
    ]
    assert sum(f.total for f in planned) == pytest.approx(
        counted(lambda: hidden.square().sum().backward()), rel=CLOSE
    )


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_head(name):
    shape = shape_of(body(name, 64, layers=1, vocabulary=5000).config)
    student = torch.randn(300, shape.hidden, requires_grad=True)
    teacher, weight = torch.randn(300, shape.hidden), torch.randn(shape.vocabulary, shape.hidden)
    tokens = torch.randint(shape.vocabulary, (300,))
    found = counted(lambda: token_divergence(student, teacher, weight, tokens).divergence.sum().backward())
    # the inner products of the statistics are counted too: four for each of the vocabulary's entries,
    # whatever the width
    inner = 2 * 4 * 300 * shape.vocabulary
    assert flops.head(shape, 300).total == pytest.approx(found - inner, rel=0.02)

    def every_other(number, stats):
        moves = torch.arange(len(stats[0].entropy)) % 2 == 0
        return [Decision(moves.float(), moves)]

    rows = (student, teacher, weight, tokens, [gjs(0.5)])
    half = counted(lambda: kernel.token_stats(*rows, lengths=[200, 100], decide=every_other))
    assert flops.head(shape, 300, 2.5).total == pytest.approx(half - inner, rel=0.02)

"""Attention along the tree against the mask over the whole row, and its place in transformers' registry."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain_path import SMALL
from transformers import LlamaConfig, LlamaModel, Qwen3Config, Qwen3Model

from smopd.scoring import PrefixTree, attention, passes
from smopd.scoring.attention import tree_attention
from smopd.scoring.passes import reply_hidden
from smopd.scoring.tree import segments_of

token_lists = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=9)


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(attention, "QUERIES", 3)  # so that segments are longer than a block


@pytest.mark.usefixtures("short_blocks")
@settings(max_examples=40)
@given(token_lists, st.sampled_from([1, 2, 4]))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_equals_the_mask_in_value_and_gradient(dtype, tolerance, sequences, kv_heads):
    tree = PrefixTree.pack(sequences)
    g = torch.Generator().manual_seed(len(tree.input_ids))
    shape = (len(tree.input_ids), 8)
    query, key, value = (
        torch.randn(1, h, *shape, generator=g, dtype=dtype).requires_grad_() for h in (4, kv_heads, kv_heads)
    )
    weight = torch.randn(1, 4, *shape, generator=g, dtype=dtype)
    ours = tree_attention(query, key, value, segments_of(tree.subtree_end.numpy()), scaling=0.3)
    wide = [t.repeat_interleave(4 // kv_heads, dim=1) for t in (key, value)]
    theirs = F.scaled_dot_product_attention(query, *wide, attn_mask=tree.attention_mask(), scale=0.3)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    for one, other in zip(
        *(torch.autograd.grad((out * weight).sum(), (query, key, value)) for out in (ours, theirs)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


SEQUENCES = [
    ([1, 2, 3, 4], [5, 6]),
    ([1, 2, 3, 4, 5, 6, 7], [8, 9, 10]),
    ([1, 2, 3, 4, 9], [5]),
    ([11], [12, 13]),
]


@pytest.mark.parametrize(
    "make", [lambda: Qwen3Model(Qwen3Config(**SMALL)), lambda: LlamaModel(LlamaConfig(**SMALL))]
)
def test_the_packed_pass_goes_along_the_tree(make, monkeypatch):
    """Were the tree lost on its way through a model, the mask would still be right, only slow: nothing else
    would show it.
    """
    calls = []
    real = attention.tree_attention
    monkeypatch.setattr(attention, "tree_attention", lambda *a: calls.append(a) or real(*a))
    reply_hidden(make().eval(), SEQUENCES)
    assert len(calls) == 2  # one a layer


def test_without_the_tree_the_mask_says_the_same(monkeypatch):
    torch.manual_seed(0)
    body = Qwen3Model(Qwen3Config(**SMALL)).eval()
    ours = reply_hidden(body, SEQUENCES)
    monkeypatch.setattr(passes, "segments_of", lambda ends: None)
    torch.testing.assert_close(ours, reply_hidden(body, SEQUENCES), rtol=1e-5, atol=1e-5)


def test_gradient_checkpointing_recomputes_along_the_tree():
    torch.manual_seed(0)
    body = Qwen3Model(Qwen3Config(**SMALL)).train()
    gradients = []
    for recompute in (False, True):
        body.zero_grad()
        if recompute:
            body.gradient_checkpointing_enable({"use_reentrant": False})
        reply_hidden(body, SEQUENCES).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in body.parameters()]))
    torch.testing.assert_close(*gradients)


def test_calls_without_a_tree_are_transformers_own():
    torch.manual_seed(0)
    body = Qwen3Model(Qwen3Config(**SMALL)).eval()
    ids = torch.tensor([[1, 2, 3, 4]])
    plain = body(input_ids=ids, use_cache=False).last_hidden_state
    body.set_attn_implementation("eager")
    torch.testing.assert_close(
        plain, body(input_ids=ids, use_cache=False).last_hidden_state, rtol=1e-5, atol=1e-5
    )

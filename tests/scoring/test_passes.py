"""Hidden states of replies, packed and padded, against one unpadded sequence at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain_path import SMALL, plain_divergence
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from smopd.errors import UserError
from smopd.scoring import plain
from smopd.scoring import token_divergence as fused
from smopd.scoring.passes import body_and_head, check_head, packable, reply_hidden
from smopd.scoring.plain import CappedHead

tokens = st.lists(st.integers(0, 30), min_size=1, max_size=9)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SMALL)).eval().requires_grad_(False)


def alone(body, context, reply):
    hidden = body(input_ids=torch.tensor([[*context, *reply]]), use_cache=False).last_hidden_state[0]
    return hidden[len(context) - 1 : len(context) - 1 + len(reply)]


@settings(max_examples=30)
@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5), st.integers(1, 60))
@pytest.mark.parametrize("path", [reply_hidden, plain.reply_hidden], ids=["packed", "padded"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_equals_one_sequence_at_a_time(model, attention, path, sequences, row_tokens):
    context, reply = sequences[0]
    sequences = [
        *sequences,
        ([*context, *reply, 7], [0, 0, 3]),
        (context, reply),
    ]  # a turn that begins a later one, and a copy
    body, _ = body_and_head(model)
    model.set_attn_implementation(attention)
    ours = path(body, sequences, row_tokens=row_tokens)
    expected = torch.cat([alone(body, c, r) for c, r in sequences])
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=20)
@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5), st.integers(1, 60))
@pytest.mark.parametrize(
    (
        "attention",
        "dtype",
        "tolerance",
    ),  # eager attention takes its softmax in float32, so float64 shows nothing there
    [("sdpa", torch.float64, 1e-10), ("sdpa", torch.float32, 1e-5), ("eager", torch.float32, 1e-5)],
)
def test_packed_gradients_equal_padded_ones(attention, dtype, tolerance, sequences, row_tokens):
    torch.manual_seed(1)
    trained = Qwen3ForCausalLM(Qwen3Config(**SMALL)).to(dtype)
    for layer in trained.modules():  # Qwen3's own norm rounds to float32, whatever the weights are
        for name, child in layer.named_children():
            if isinstance(child, Qwen3RMSNorm):
                setattr(layer, name, torch.nn.RMSNorm(child.weight.shape[0], eps=1e-6, dtype=dtype))
    trained.set_attn_implementation(attention)
    context, reply = sequences[0]
    sequences = [*sequences, ([*context, *reply, 7], [0, 0, 3]), (context, reply)]
    results = []
    for path in (reply_hidden, plain.reply_hidden):
        trained.zero_grad()
        states = path(trained.model, sequences, row_tokens=row_tokens)
        states.square().mean().backward()
        results.append((states.detach(), torch.cat([p.grad.flatten() for p in trained.model.parameters()])))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_a_sliding_window_is_packed_only_while_it_hides_nothing():
    windowed = Qwen3Config(**SMALL, use_sliding_window=True, sliding_window=6, max_window_layers=0)
    assert set(windowed.layer_types) == {"sliding_attention"}
    torch.manual_seed(0)
    body = Qwen3ForCausalLM(windowed).eval().model
    assert packable(body, 6)
    assert not packable(body, 7)
    sequences = [([1, 2, 3, 4, 5, 6, 7, 8], [9, 10]), ([1, 2, 3], [4])]
    with torch.no_grad():
        expected = torch.cat([alone(body, c, r) for c, r in sequences])
        torch.testing.assert_close(reply_hidden(body, sequences), expected, rtol=1e-4, atol=1e-5)


def test_position_i_predicts_reply_token_i(model):
    """Changing reply token i moves the states behind it and none up to its own prediction."""
    body, _ = body_and_head(model)
    before, after = reply_hidden(body, [([1, 2], [3, 4, 5])]), reply_hidden(body, [([1, 2], [3, 9, 5])])
    assert torch.equal(before[:2], after[:2])
    assert (before[2] - after[2]).abs().max() > 1e-4


def test_a_reply_without_context_is_refused(model):
    with pytest.raises(ValueError, match="at least one context token"):
        reply_hidden(body_and_head(model)[0], [([], [1, 2])])


def test_a_soft_capped_head_carries_its_cap():
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**SMALL, final_logit_softcapping=0.5)).eval().requires_grad_(False)
    check_head(model, [1, 2, 3])
    body, head = body_and_head(model)
    assert isinstance(head, CappedHead)
    assert head.softcap == 0.5
    assert head.data_ptr() == model.lm_head.weight.data_ptr()  # not a copy
    assert type(head.detach()) is type(head @ head.T) is torch.Tensor
    sequences = [([1, 2, 3], [4, 5, 6, 7])]
    hidden, tokens = reply_hidden(body, sequences), torch.tensor(sequences[0][1])
    model_logps = (
        model(torch.tensor([[1, 2, 3, 4, 5, 6, 7]]))
        .logits[0, 2:-1]
        .log_softmax(-1)
        .gather(-1, tokens[:, None])[:, 0]
    )
    for token_divergence in (fused, plain_divergence):
        logps = token_divergence(hidden, hidden, head, tokens).student_logp
        torch.testing.assert_close(logps, model_logps, rtol=1e-5, atol=1e-6)
        uncapped = token_divergence(hidden, hidden, head.detach(), tokens).student_logp
        assert (uncapped - model_logps).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        (GraniteForCausalLM, GraniteConfig(**SMALL, logits_scaling=8.0), "config.logits_scaling = 8.0"),
        (
            CohereForCausalLM,
            CohereConfig(**SMALL, logit_scale=0.0625, pad_token_id=0),
            "config.logit_scale = 0.0625",
        ),
        (PhiForCausalLM, PhiConfig(**SMALL), "a bias on the head"),
        (
            Qwen3ForCausalLM,
            Qwen3Config(**SMALL, final_logit_softcapping=0.1),
            "config.final_logit_softcapping = 0.1",
        ),  # not used
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_models_whose_head_is_not_plain_are_refused_by_the_field_that_says_so(kind, config, field):
    torch.manual_seed(0)
    model = kind(config).eval().requires_grad_(False)
    if model.get_output_embeddings().bias is not None:
        model.get_output_embeddings().bias.fill_(1.0)
    with pytest.raises(UserError) as caught:
        check_head(model, [1, 2, 3])
    assert kind.__name__ in str(caught.value)
    assert field in str(caught.value)


def test_a_plain_head_passes_and_a_trained_one_is_refused(model):
    check_head(model, [1, 2, 3])
    with pytest.raises(UserError, match="lm_head is trainable"):
        body_and_head(Qwen3ForCausalLM(Qwen3Config(**SMALL)))

"""Hidden states of replies: padded, shared and cut into batches, against one unpadded sequence at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from smopd.errors import UserError
from smopd.scoring.passes import _batches, _rows, body_and_head, check_head, reply_hidden, reply_tokens

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
         "head_dim": 8, "vocab_size": 31}  # fmt: skip
tokens = st.lists(st.integers(0, 30), min_size=1, max_size=9)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**SMALL)).eval().requires_grad_(False)


def alone(body, context, reply):
    hidden = body(input_ids=torch.tensor([[*context, *reply]]), use_cache=False).last_hidden_state[0]
    return hidden[len(context) - 1 : len(context) - 1 + len(reply)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5), st.integers(1, 60))
def test_equals_one_sequence_at_a_time(model, sequences, row_tokens):
    context, reply = sequences[0]
    sequences = [*sequences, ([*context, *reply, 7], [0, 0, 3]), (context, reply)]  # a turn that begins a later one, and a copy
    body, _ = body_and_head(model)
    ours = reply_hidden(body, sequences, row_tokens=row_tokens)
    expected = torch.cat([alone(body, c, r) for c, r in sequences])
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    assert reply_tokens(sequences).tolist() == [t for _, r in sequences for t in r]


def test_position_i_predicts_reply_token_i(model):
    """Changing reply token i moves the states behind it and none up to its own prediction."""
    body, _ = body_and_head(model)
    before, after = reply_hidden(body, [([1, 2], [3, 4, 5])]), reply_hidden(body, [([1, 2], [3, 9, 5])])
    assert torch.equal(before[:2], after[:2])
    assert (before[2] - after[2]).abs().max() > 1e-4


def test_only_beginnings_share_a_row():
    rows, host = _rows([([1], [2]), ([1, 2, 3], [4]), ([1, 2, 4], [4]), ([1], [2])])
    assert sorted(rows) == [(1, 2, 3, 4), (1, 2, 4, 4)]
    assert all(rows[h][: len(s)] == s for h, s in zip(host, [(1, 2), (1, 2, 3, 4), (1, 2, 4, 4), (1, 2)], strict=True))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = _batches(lengths, budget)
    assert sorted(i for b in batches for i in b) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in batches)


def test_a_reply_without_context_is_refused(model):
    with pytest.raises(ValueError, match="at least one context token"):
        reply_hidden(body_and_head(model)[0], [([], [1, 2])])


def test_models_whose_head_is_not_plain_are_refused(model):
    check_head(model, [1, 2, 3])
    torch.manual_seed(0)
    capped = Gemma2ForCausalLM(Gemma2Config(**SMALL, final_logit_softcapping=0.5)).eval().requires_grad_(False)
    with pytest.raises(UserError, match="soft-capping"):
        check_head(capped, [1, 2, 3])
    with pytest.raises(UserError, match="lm_head is trainable"):
        body_and_head(Qwen3ForCausalLM(Qwen3Config(**SMALL)))

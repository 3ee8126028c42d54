"""PrefixTree: every sequence found again, nobody sees what is not its own past, for any set of sequences."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from smopd.scoring import PrefixTree
from smopd.scoring.tree import rows_within, segments_of

# few symbols: much is shared; whole sequences come twice, and begin one another
token_lists = st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=9)


@given(token_lists)
def test_sequences_are_found_again_in_order_and_at_their_positions(sequences):
    tree = PrefixTree.pack(sequences)
    for sequence, index in zip(sequences, tree.index, strict=True):
        assert tree.input_ids[index].tolist() == sequence
        assert tree.position_ids[index].tolist() == list(range(len(sequence)))
    assert len(tree.input_ids) == len(
        {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    )  # each prefix once


@given(token_lists)
def test_a_token_sees_its_own_past_and_nothing_else(sequences):
    tree = PrefixTree.pack(sequences)
    mask = tree.attention_mask()
    expected = torch.zeros_like(mask)
    for index in tree.index:
        for place in range(len(index)):
            expected[index[place], index[: place + 1]] = True
    assert torch.equal(mask, expected)
    assert torch.equal(tree.additive_mask(torch.float32) == 0, expected)


@given(token_lists)
def test_the_layout_does_not_depend_on_the_order_of_the_sequences(sequences):
    one, other = PrefixTree.pack(sequences), PrefixTree.pack(sequences[::-1])
    assert torch.equal(one.input_ids, other.input_ids)
    assert torch.equal(one.subtree_end, other.subtree_end)


def test_corners():
    assert len(PrefixTree.pack([]).input_ids) == 0
    assert PrefixTree.pack([[]]).index[0].tolist() == []
    tree = PrefixTree.pack([[5, 6, 7], [5, 6], [5, 6, 300_000], [9]])
    assert tree.input_ids.tolist() == [5, 6, 7, 300_000, 9]
    assert tree.subtree_end.tolist() == [4, 4, 3, 4, 5]


@given(token_lists, st.integers(1, 30))
def test_rows_keep_to_the_budget_and_hold_every_sequence_once(sequences, budget):
    rows = rows_within(sequences, budget)
    assert sorted(k for row in rows for k in row) == list(range(len(sequences)))
    for row in rows:
        packed = len(PrefixTree.pack([sequences[k] for k in row]).input_ids)
        assert (
            packed <= budget
            or len({tuple(sequences[k]) for k in row}) == 1
            or packed == max(len(sequences[k]) for k in row)
        )


@given(token_lists, st.integers(1, 12))
def test_no_other_cuts_pack_fewer_tokens(sequences, budget):
    def packed(row):
        return len(PrefixTree.pack([sequences[k] for k in row]).input_ids)

    def fits(row):
        return packed(row) <= max(budget, *(len(sequences[k]) for k in row))

    order = sorted(range(len(sequences)), key=lambda k: sequences[k])
    fewest = [0]
    for n in range(1, len(order) + 1):
        fewest.append(
            min(fewest[first] + packed(order[first:n]) for first in range(n) if fits(order[first:n]))
        )
    assert sum(map(packed, rows_within(sequences, budget))) == fewest[-1]


@given(token_lists)
def test_segments_tile_the_row_and_their_ancestors_are_the_path_to_them(sequences):
    tree = PrefixTree.pack(sequences)
    segments, mask = segments_of(tree.subtree_end.numpy()), tree.attention_mask()
    assert [place for s in segments for place in range(s.start, s.stop)] == list(range(len(tree.input_ids)))
    for segment in segments:
        above = [place for a in segment.ancestors for place in range(segments[a].start, segments[a].stop)]
        for place in range(segment.start, segment.stop):
            assert mask[place].nonzero()[:, 0].tolist() == [*above, *range(segment.start, place + 1)]


@settings(max_examples=5)
@given(token_lists)
def test_flex_attention_takes_the_same_mask(sequences):
    tree = PrefixTree.pack([*sequences, [1, 2]])
    length = len(tree.input_ids)
    g = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(1, 2, length, 16, generator=g) for _ in range(3))
    block = create_block_mask(tree.mask_mod(), None, None, length, length, device="cpu")
    ours = flex_attention(q, k, v, block_mask=block)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=tree.attention_mask())
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_conversations_share_what_they_share_and_no_more():
    g = np.random.default_rng(0)
    sequences = []
    for conversation in range(200):
        context = [1, 2, 3, 1000 + conversation]
        for _ in range(6):
            context = context + g.integers(150_000, size=140).tolist()
            sequences.append(context)
    assert len(PrefixTree.pack(sequences).input_ids) == 3 + 200 * (1 + 6 * 140)

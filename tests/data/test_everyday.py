"""The everyday world: every state follows from what was said, the splits share no word and no way to say a
thing, the same from the same seed, graded.
"""

import re
from collections import Counter
from itertools import pairwise

import pytest

from smopd.data import load_examples
from smopd.data.everyday import FAMILIES, LEVELS, SIZES, WORDS
from smopd.errors import UserError
from smopd.verify import tasks, verify

NAMES = [f"everyday@{family}:{split}:120" for family in FAMILIES for split in ("train", "eval")]


@pytest.mark.parametrize("name", NAMES)
def test_every_turn_has_a_right_reply_that_verifies_there_and_where_nothing_changed(name):
    for example in load_examples(name):
        task = tasks.find(example.task)
        states = [task.turn_answer(example.answer, turn) for turn in range(len(example.shards))]
        (last,) = task.reference_replies(example.answer)
        assert verify(example, last).correct
        for turn, state in enumerate(states[:-1]):
            (reply,) = task.reference_replies(state)
            content, last_content = (
                {k: v for k, v in s.items() if k != "parts"} for s in (state, states[-1])
            )
            assert verify(example, reply).correct == (content == last_content), (example.shards, turn, reply)
        assert task.turn_answer(example.answer, len(states)) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_fact_names_what_it_changes(name):
    """So that each state follows from the one before and the words of its shard alone."""
    for example in load_examples(name):
        turns = example.answer["turns"]
        for shard, (before, after) in zip(example.shards, pairwise([{}, *turns]), strict=True):
            shard_words = set(re.findall(r"[a-z0-9]+", shard.lower()))
            changed = _entries(before).symmetric_difference(_entries(after))
            assert changed, shard
            for key, value in changed:
                mentioned = set(re.findall(r"[a-z0-9]+", f"{key} {value}".lower()))
                assert mentioned & shard_words or example.task == "bill", (shard, key, value)


def _entries(state):
    """What a state says: a bill's is its parts."""
    inner = next((value for value in state.values() if isinstance(value, dict)), None)
    entries = inner.items() if inner is not None else enumerate(state.get("parts", []))
    return {(str(key), str(value)) for key, value in entries}


def test_a_bill_is_the_sum_of_its_numbers():
    for example in load_examples("everyday@bill:eval:200"):
        parts = []
        for shard, state in zip(example.shards, example.answer["turns"], strict=True):
            (number,) = map(int, re.findall(r"\d+", shard))
            back = any(word in shard for word in ("returned", "saved"))
            parts.append(-number if back else number)
            assert state == {"total": sum(parts), "parts": parts}
        (reply,) = tasks.find("bill").reference_replies(example.answer)
        assert eval(reply.partition("=")[0]) == example.answer["total"]


def _texts(value):
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    return [text for inner in value for text in _texts(inner)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_splits_share_neither_words_nor_templates(family):
    train, held_out = WORDS[family]["train"], WORDS[family]["eval"]
    assert not set(_texts(train)) & set(_texts(held_out))
    for kind in ("forms", "slots"):
        assert not set(train.get(kind, ())) & set(held_out.get(kind, ()))


def test_shape_levels_and_numbers():
    examples = load_examples("everyday:eval")
    assert (
        len(examples) == SIZES["eval"] == len({e.id for e in examples}) == len({e.shards for e in examples})
    )
    assert {len(e.shards) for e in load_examples("everyday:train:600")} == {3, 4, 5, 6, 7, 8}
    kinds = Counter((e.task, e.answer["level"]) for e in examples)
    assert set(kinds.values()) == {SIZES["eval"] // (len(FAMILIES) * len(LEVELS))}
    lengths = {
        level: sum(len(e.shards) for e in load_examples(f"everyday@{level}:train:200")) for level in LEVELS
    }
    assert lengths["easy"] < lengths["medium"] < lengths["hard"]
    for example in examples:
        assert len(example.answer["turns"]) == len(example.shards)
    assert {len(e.shards) for e in load_examples("everyday@short:train:80")} == {1, 2}
    for example in examples:
        assert sorted(example.full) == sorted(" ".join(example.shards))  # the same words, the goal elsewhere


def test_corrections_come_with_the_level():
    def corrected(example):
        turns = [_entries(state) for state in example.answer["turns"]]
        return any(before - after for before, after in pairwise(turns))

    for level, some in (("easy", False), ("medium", True), ("hard", True)):
        for example in load_examples(f"everyday@shopping+booking+schedule+{level}:train:150"):
            assert corrected(example) == some


def test_the_same_name_gives_the_same_examples_and_ranges_fit_together():
    whole = load_examples("everyday:train:90")
    assert whole == load_examples("everyday:train:90")
    assert load_examples("everyday:train:31-90") == whole[30:]
    assert {e.task for e in load_examples("everyday@bill+shopping:eval:20")} == {"bill", "shopping"}


@pytest.mark.parametrize(
    "name", ["everyday:test", "everyday@cooking:train", "everyday:eval:9-3", "everyday:eval:0"]
)
def test_a_misspelt_name_is_told(name):
    with pytest.raises(UserError, match="the everyday world is named everyday:train or everyday:eval"):
        load_examples(name)

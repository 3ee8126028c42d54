"""What prompts have in common is computed once, and nothing else changes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smopd.rollout import batches
from smopd.rollout.batches import SHORTEST, shared_prefixes
from smopd.rollout.engine import Sampling
from smopd.rollout.hf import HFEngine

SAMPLING = Sampling(1.0, 12, top_p=0.95, top_k=20)


def sentence(seed, length):
    draw = random.Random(seed)
    return [draw.randrange(20, 400) for _ in range(length)]


SCHEMA, OTHER = sentence(1, SHORTEST + 40), sentence(2, SHORTEST + 90)
# Two databases, deeper prefixes inside one of them, a prompt alone, and a short one.
PROMPTS = [
    SCHEMA + sentence(3, 9),
    OTHER + sentence(4, 5),
    SCHEMA + sentence(5, SHORTEST + 3) + sentence(6, 4),
    SCHEMA + sentence(5, SHORTEST + 3) + sentence(7, 11),
    sentence(8, SHORTEST + 61),
    OTHER + sentence(9, 30),
    sentence(10, 7),
    SCHEMA + sentence(3, 9),
]


def sample(chat, monkeypatch, shortest, batch=64, static=None):
    monkeypatch.setattr(batches, "SHORTEST", shortest)
    graphs = {"static": True, "graphs": None} if static else {}
    engine = HFEngine(chat.model, chat.renderer.end_ids, batch, **graphs)
    return engine.generate(PROMPTS, range(len(PROMPTS)), SAMPLING), engine.usage


@pytest.mark.parametrize("static", [False, True], ids=["growing", "static"])
@pytest.mark.parametrize("batch", [64, 3])
def test_replies_are_those_of_whole_prompts(pocket, monkeypatch, batch, static):
    expected, plain = sample(pocket, monkeypatch, 10**6)
    replies, usage = sample(pocket, monkeypatch, SHORTEST, batch, static)
    assert replies == expected
    for reply, other in zip(replies, expected, strict=True):
        assert reply.logps == pytest.approx(other.logps, abs=1e-4)
    assert usage.prompt == plain.prompt == sum(map(len, PROMPTS))
    if batch == 64:
        # Two schemas, the deeper prefix, the prompt alone and what follows, with a quarter of padding.
        assert usage.prefilled < 0.65 * plain.prefilled
        assert usage.reused > 0.4 * usage.prompt


prompts = st.lists(
    st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 500), st.integers(1, 60)).map(
        lambda part: (SCHEMA + OTHER)[: part[1]] + [1000 + part[0]] * part[2]
    ),
    min_size=1,
    max_size=12,
)


@given(prompts, st.randoms(use_true_random=False))
def test_every_prefix_is_one_and_asking_again_ends(asked, draw):
    computed = [draw.randrange(len(prompt)) if draw.random() < 0.3 else 0 for prompt in asked]
    for _ in range(10):
        groups = shared_prefixes(asked, computed)
        members = [m for group in groups for m in group.members]
        assert len(members) == len(set(members))
        for group in groups:
            assert {tuple(asked[m][: group.length]) for m in group.members} == {
                tuple(asked[group.members[0]][: group.length])
            }
            for m in group.members:
                assert computed[m] < group.length < len(asked[m])
                computed[m] = group.length
        if not groups:
            return
    raise AssertionError("it never ends")


def test_short_or_single_prompts_are_left_alone():
    assert shared_prefixes([SCHEMA, OTHER, OTHER[:20], OTHER[:20]], [0] * 4) == []
    assert shared_prefixes([], []) == []

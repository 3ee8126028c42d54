"""The pocket world: solvable from its words, 4 to 7 shards, goal first, the splits apart, the same from the
same seed.
"""

import re
from itertools import islice

import pytest

from smopd.data.pocket_world import FUNCTIONS, LARGEST, NAMES, VALUES, generate, tasks
from smopd.evaluation import verify


def told(split, count, seed=0):
    return list(islice(tasks(split, seed), count))


def test_splits_share_no_task_under_any_seed():
    content = {
        split: {
            (t.task.family, t.task.function, frozenset(t.task.facts))
            for seed in (0, 1)
            for t in told(split, 1500, seed)
        }
        for split in ("train", "eval")
    }
    assert not content["train"] & content["eval"]


def test_the_same_seed_gives_the_same_examples_and_another_seed_others():
    assert generate("train", 50, 3) == generate("train", 50, 3)
    assert generate("train", 50, 3) != generate("train", 50, 4)
    assert generate("train", 80, 3)[:50] == generate("train", 50, 3)


def test_shape():
    examples = generate("eval", 400)
    assert {len(e.shards) for e in examples} == {3, 4, 5, 6, 7} - {3}
    assert {e.task for e in examples} == {"math", "actions"}
    assert len({e.id for e in examples}) == 400
    orders = [t.order != t.task.facts for t in told("eval", 200)]
    assert sum(orders) > 150  # shuffled
    assert len({e.shards[0] for e in examples}) > 50  # varied wording


def test_the_goal_comes_first_and_gives_nothing_away():
    for t in told("eval", 200):
        goal = t.example.shards[0]
        assert not re.search(r"\d", goal)
        if t.task.family == "actions":
            assert FUNCTIONS[t.task.function] in goal
        else:
            assert any(name in goal for name in NAMES)


def test_every_fact_is_in_its_shard_and_in_full():
    for t in told("train", 200):
        assert len(t.order) == len(t.example.shards) - 1
        for fact, shard in zip(t.order, t.example.shards[1:], strict=True):
            assert re.search(rf"\b{fact.value}\b", shard)
            assert re.search(rf"\b{fact.value}\b", t.example.full)
            if fact.op:
                assert fact.slot in shard


def test_answers_follow_from_the_facts():
    for t in told("eval", 300):
        if t.task.family == "math":
            value = int(t.task.facts[0].value)
            for fact in t.task.facts[1:]:
                value = {
                    "+": value + int(fact.value),
                    "-": value - int(fact.value),
                    "x": value * int(fact.value),
                }[fact.op]
                assert 1 <= value <= LARGEST
            assert verify(t.example, f"The answer is {value}.").correct
            assert not verify(t.example, f"The answer is {value + 1}.").correct
        else:
            call = ", ".join(f"{f.slot}={f.value!r}" for f in t.task.facts)
            assert verify(t.example, f"[{t.task.function}({call})]").correct
            other = next(v for v in VALUES[t.task.facts[0].slot] if v != t.task.facts[0].value)
            wrong = call.replace(
                f"{t.task.facts[0].slot}={t.task.facts[0].value!r}", f"{t.task.facts[0].slot}={other!r}"
            )
            assert not verify(t.example, f"[{t.task.function}({wrong})]").correct


@pytest.mark.parametrize("split", ["train", "eval"])
def test_order_matters_in_many_stories(split):
    """Applying the stages as they arrive must often be wrong, or a running guess would be as good as a
    derivation.
    """
    wrong = 0
    stories = [t for t in told(split, 400) if t.task.family == "math"]
    for t in stories:
        value = 0
        for fact in t.order:
            n = int(fact.value)
            value = {"+": value + n, "-": value - n, "x": value * n, "": value + n}[fact.op]
        wrong += not verify(t.example, str(value)).correct
    assert wrong / len(stories) > 0.3

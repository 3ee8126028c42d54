"""What the user says in each view."""

import pytest

from smopd.chat import VIEWS, user_turns
from smopd.data import Example, load_examples

TASK = Example(
    "x",
    "math",
    "",
    ("How many are left?", "There were 7.", "Two were eaten."),
    "There were 7 ...",
    {"value": "5"},
)


def test_full_is_one_message_and_sharded_the_shards():
    assert user_turns(TASK, "full") == (TASK.full,)
    assert user_turns(TASK, "sharded") == TASK.shards


def test_concat_is_one_message_with_every_shard_as_a_bullet_in_order():
    (message,) = user_turns(TASK, "concat")
    assert message.split("\n")[-3:] == [f"- {s}" for s in TASK.shards]
    assert TASK.full not in message


def test_recap_is_sharded_and_one_more_turn_that_restates_everything():
    *first, last = user_turns(TASK, "recap")
    assert tuple(first) == TASK.shards
    assert [last.count(s) for s in TASK.shards] == [1, 1, 1]


def test_snowball_restates_the_earlier_shards_before_the_new_one():
    turns = user_turns(TASK, "snowball")
    assert len(turns) == 3
    assert turns[0] == TASK.shards[0]
    for k, turn in enumerate(turns):
        assert [turn.count(s) for s in TASK.shards] == [int(i <= k) for i in range(3)]
        assert sorted(TASK.shards[: k + 1], key=turn.index) == list(TASK.shards[: k + 1])
        assert turn.endswith(TASK.shards[k])


@pytest.mark.parametrize("view", [v for v in VIEWS if v != "simulated"])
def test_braces_in_a_shard_are_no_placeholders(view):
    odd = Example("x", "code", "", ("Return {shards}", "as {0}"), "{new}", {"test": ""})
    assert any("{" in turn for turn in user_turns(odd, view))


def test_a_simulated_user_is_not_known_beforehand():
    with pytest.raises(ValueError, match="not known beforehand"):
        user_turns(load_examples("pocket:eval:1")[0], "simulated")

"""Replies that state where a conversation has got to: the forms that are taken, what is refused, and that no
text raises or hangs.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smopd.data import Example
from smopd.verify import verify

ANSWERS = {
    "shopping": {"items": {"apples": 4, "pears": 12}},
    "booking": {"call": "book_table", "arguments": {"day": "monday", "people": 4}},
    "bill": {"total": 17},
    "schedule": {"plan": {"Ana": "9:15", "Ben": "11:00"}},
}
EMPTY = {
    "shopping": {"items": {}}, "booking": {"call": "book_table", "arguments": {}}, "bill": {"total": 0},
    "schedule": {"plan": {}},
}  # fmt: skip


def judged(task, reply, answer=None):
    return verify(Example("x", task, "", ("a",), "a", answer or ANSWERS[task]), reply)


def test_the_case_of_a_call_does_not_count():
    answer = {"call": "bookTable", "arguments": {"day": "monday"}}
    assert judged("booking", "bookTable(day=Monday)", answer).correct
    assert not judged("booking", "bookTables(day=Monday)", answer).correct


@pytest.mark.parametrize(
    ("task", "reply"),
    [
        ("shopping", "4 apples, 12 pears"), ("shopping", "12 Pears, 4 apples."),
        ("shopping", "Here is the list:\n- 4 x apples\n- 12x pears"),
        ("booking", "book_table(day=monday, people=4)"), ("booking", "book_table(people=4, day='Monday')"),
        ("booking", 'Sure: book_table(day="monday", people=4)'),
        ("bill", "total: 17"), ("bill", "12 + 5 = 17"), ("bill", "That is $17."), ("bill", "17 dollars"),
        ("schedule", "Ana 9:15, Ben 11:00"), ("schedule", "Ben: 11:00, ana: 9:15."),
        ("schedule", "- Ana: 9:15\n- Ben at 11:00"),
    ],
)  # fmt: skip
def test_right_replies(task, reply):
    assert judged(task, reply).correct


@pytest.mark.parametrize(
    ("task", "reply"),
    [
        ("shopping", "4 apples"), ("shopping", "4 apples, 12 pears, 2 eggs"),
        ("shopping", "4 pears, 12 apples"),
        ("shopping", "4 apples, 12 pears, 4 apples"), ("shopping", "apples and pears"), ("shopping", ""),
        ("booking", "book_table(day=monday)"), ("booking", "book_table(day=monday, people=5)"),
        ("booking", "order_taxi(day=monday, people=4)"), ("booking", "book_table(day=monday, people=4, x=1)"),
        ("booking", "book_table()"), ("booking", "monday, 4 people"),
        ("booking", "book_table(day=monday, people=4) book_table(day=monday)"),
        ("bill", "total: 16"), ("bill", "17 - 1 = 16"), ("bill", "seventeen"), ("bill", "117"),
        ("schedule", "Ana 9:15"), ("schedule", "Ana 11:00, Ben 9:15"),
        ("schedule", "Ana 9:15, Ben 11:00, Max 12:40"),
        ("schedule", "Ana 9:15, Ana 9:15, Ben 11:00"), ("schedule", "Ana 9:15, Ben 11:30"),
        ("schedule", "I would say Ana comes at 9:15 and Ben at 11:00"),
    ],
)  # fmt: skip
def test_wrong_replies(task, reply):
    assert not judged(task, reply).correct


@pytest.mark.parametrize(
    ("task", "right", "wrong"),
    [
        ("shopping", ["nothing yet", "Sure, what do you need?"], ["5 mangos"]),
        ("booking", ["book_table()"], ["book_table(day=monday)", "sure"]),
        ("bill", ["total: 0", "nothing yet"], ["total: 7", ""]),
        ("schedule", ["nobody yet", "The plan is empty."], ["Zoe 6:20, Max 12:40", "Zoe 6:20"]),
    ],
)
def test_where_nothing_is_known_yet(task, right, wrong):
    assert [judged(task, reply, EMPTY[task]).correct for reply in right] == [True] * len(right)
    assert [judged(task, reply, EMPTY[task]).correct for reply in wrong] == [False] * len(wrong)


@given(st.sampled_from(sorted(ANSWERS)), st.text())
def test_no_text_raises(task, reply):
    assert judged(task, reply).status in ("ok", "no_answer")


@pytest.mark.parametrize("task", ANSWERS)
@pytest.mark.parametrize("piece", ["a", "1", "(", "a=", "1 a", "monday ", "f(a=1) ", ",", "9,"])
def test_a_long_reply_takes_linear_time(task, piece):
    assert not judged(task, piece * 200_000).correct

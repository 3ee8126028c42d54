"""LiC's protocol with a model as the user, against a real HTTP endpoint whose every answer is chosen by the
test.
"""

import json
import re

import pytest
from support.chat_stub import driver, said

from smopd.data import Example
from smopd.evaluation.evaluate import evaluate
from smopd.evaluation.simulated import KINDS, SimulatedUser
from smopd.settings import UserSettings

SHARDS = ("How many are left?", "There were 7.", "Two were eaten.", "One was lost.")
TASK = Example("x", "math", "Be brief.", SHARDS, "?", {"value": "4"})


class Cast:
    """One endpoint for both parts: `replies` are the assistant's, by turn; the user side follows the test's
    script.
    """

    def __init__(self, replies, labels=None, facts=None, extract=None):
        self.replies, self.labels, self.facts, self.extract = replies, labels or {}, facts or {}, extract
        self.asked = {"say": [], "label": [], "extract": []}

    def __call__(self, body, headers):
        if body is None:
            return {"data": [{"id": "m"}]}
        messages = body["messages"]
        prompt = messages[-1]["content"]
        if prompt.startswith("You play a person"):
            self.asked["say"].append(body)
            hidden = [
                int(n) for n in re.findall(r"^(\d+)\. ", prompt.split("Facts already")[0], re.MULTILINE)
            ]
            fact = self.facts.get(len(hidden), hidden[0])
            return said(
                json.dumps({"fact": fact, "message": f"by the way, {TASK.shards[fact - 1]}"})
                if isinstance(fact, int)
                else fact
            )
        if prompt.startswith("A person revealed"):
            self.asked["label"].append(body)
            turn = prompt.count("\n\nAssistant: ")
            return said(self.labels.get(turn, '{"kind": "answer"}'))
        if prompt.startswith("From the reply"):
            self.asked["extract"].append(body)
            reply = prompt.split("The reply:\n")[1].split("\n\nAnswer with JSON")[0]
            return said(self.extract(reply) if self.extract else json.dumps({"answer": reply}))
        return said(self.replies[sum(m["role"] == "user" for m in messages) - 1])


@pytest.fixture
def play(chat_server):
    """Plays examples with a cast; the outcomes, the user, and the endpoint."""

    def go(cast, retries=1, examples=(TASK,)):
        stub = chat_server(cast)
        user = SimulatedUser(UserSettings(servers=[stub.url], model="m", retries=retries), 0.01)
        return evaluate(driver(stub.url), list(examples), ["simulated"], user=user.converse), user, stub

    return go


def test_it_tells_one_shard_a_turn_and_ends_at_the_first_right_attempt(play):
    cast = Cast(
        ["How many were there?", "So 7 are left.", "The answer is 4."],
        {1: '{"kind": "clarification"}'},
        {3: 3, 2: 4},
    )
    (outcome,), _, _ = play(cast)
    assert [t["user"] for t in outcome.turns] == [
        "How many are left?", "by the way, Two were eaten.", "by the way, One was lost.",
    ]  # fmt: skip
    assert (outcome.correct, outcome.any_correct, outcome.status, outcome.view) == (
        True,
        True,
        "ok",
        "simulated",
    )
    assert len(cast.asked["extract"]) == 2  # of the two attempts, not of the question


def test_it_ends_when_all_is_told_and_the_last_reply_counts(play):
    (outcome,), _, _ = play(Cast(["7", "5", "3", "2"]))
    assert len(outcome.turns) == 4
    assert (outcome.correct, outcome.any_correct, outcome.extracted) == (False, False, "2")
    (outcome,), _, _ = play(Cast(["7", "5", "3", "Is that all?"], {4: '{"kind": "clarification"}'}))
    assert (outcome.correct, outcome.status, outcome.detail) == (
        False,
        "no_answer",
        "not an answer attempt but a clarification",
    )


def test_an_attempt_is_what_is_labelled_so(play):
    """A right number in a reply that commits to nothing is no success."""
    kinds = dict.fromkeys((1, 2, 3, 4), '{"kind": "hedge"}')
    (outcome,), _, _ = play(Cast(["4 or 5"] + ["4"] * 3, kinds))
    assert not outcome.correct
    assert not outcome.any_correct


def test_the_extracted_answer_counts_if_it_stands_in_the_reply(play):
    reply = "I get 4, and I checked it 2 times."
    (outcome,), _, _ = play(Cast([reply], extract=lambda _: '{"answer": "I get 4"}'))
    assert (outcome.correct, outcome.extracted) == (True, "4")
    (outcome,), user, _ = play(
        Cast([reply] * 4, extract=lambda _: '{"answer": "4 apples"}')
    )  # invented: the reply is judged
    assert (outcome.correct, outcome.extracted, user.unusable) == (False, "2", 4)


JUNK = [
    "no json", '{"fact": 1, "message": "told before"}', '{"fact": 9, "message": "x"}',
    '{"fact": 2, "message": ""}', "[1]", '{"fact": "2", "message": "x"}',
]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK)
def test_a_user_that_cannot_be_used_is_asked_again_then_the_shard_is_told_verbatim(play, junk):
    cast = Cast(["7", "5", "3", "2"], facts=dict.fromkeys((1, 2, 3), junk))
    (outcome,), user, _ = play(cast, retries=2)
    assert [t["user"] for t in outcome.turns] == list(TASK.shards)
    assert len(cast.asked["say"]) == 3 * 3
    assert len({body["seed"] for body in cast.asked["say"]}) == 9  # another try is another draw
    assert user.unusable == 3


def test_an_unreadable_label_makes_it_an_attempt_and_an_empty_reply_is_missing(play):
    (outcome,), user, _ = play(Cast(["", "4"], {2: "who knows"}))
    assert (outcome.correct, len(outcome.turns), user.unusable) == (True, 2, 1)


def test_json_is_found_in_prose_and_fences(play):
    labels = {1: 'Sure!\n```json\n{"kind": "Discussion"}\n```', 2: '{"kind": "answer"}'}
    (outcome,), user, _ = play(Cast(["Let me think.", "4"], labels))
    assert (outcome.correct, user.unusable) == (True, 0)


def test_the_user_sees_what_is_hidden_and_the_judge_sees_the_talk(play):
    cast = Cast(["7", "4"])
    play(cast)
    prompt = cast.asked["say"][0]["messages"][-1]["content"]
    hidden, revealed = prompt.split("Facts already told:")
    assert all(s in hidden for s in TASK.shards[1:])
    assert TASK.shards[0] not in hidden
    assert TASK.shards[0] in revealed
    assert "Assistant: 7" in prompt
    assert all(kind in cast.asked["label"][0]["messages"][-1]["content"] for kind in KINDS)
    assert TASK.answer["value"] + "\n" not in prompt  # nobody is told the answer
    assert {body["temperature"] for body in cast.asked["say"]} == {1.0}
    assert {body["temperature"] for body in cast.asked["label"] + cast.asked["extract"]} == {0.0}


def test_conversations_of_different_length_go_on_side_by_side(play):
    short = Example("y", "math", "", ("Sum?", "1 and 3."), "?", {"value": "4"})
    first, second = play(Cast(["7", "5", "3", "2"]), examples=(TASK, short))[0]
    assert (len(first.turns), len(second.turns)) == (4, 2)

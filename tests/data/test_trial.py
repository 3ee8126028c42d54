"""Trying verifiers: one that always fails is an error, one that takes the wrong things a warning."""

import pytest

from smopd.data import Example, load_examples
from smopd.data.check import GARBAGE, TRIED, try_verifiers
from smopd.errors import UserError
from smopd.verify import tasks
from smopd.verify.task import Task
from smopd.verify.verdict import Verdict


def right(example, reply):
    return Verdict(example.answer["value"] in reply, reply, "ok", "")


def failing(example, reply):
    return Verdict(False, None, "error", "KeyError: 'valeu'")


@pytest.fixture
def examples():
    yield [Example(str(n), "own", "", ("goal",), "goal", {"value": f"v{n}"}) for n in range(30)]
    tasks.forget("own")


def register(judge, **fields):
    tasks.register(Task("own", ("value",), judge=judge, **fields))


def test_a_sound_verifier_is_tried_in_silence(examples):
    asked = []
    register(lambda example, reply: asked.append((example.id, reply)) or right(example, reply))
    assert try_verifiers(examples) == ([], {})
    assert {reply for _, reply in asked} > set(GARBAGE)
    assert len({id for id, _ in asked}) == TRIED


def test_one_that_always_fails_is_an_error(examples):
    register(failing)
    (error,), _ = try_verifiers(examples)
    assert "task 'own': the verifier failed on every one of" in error
    assert "first with error: KeyError: 'valeu'" in error


def test_one_broken_example_is_not_the_verifier(examples):
    register(lambda example, reply: (failing if example.id == "0" else right)(example, reply))
    errors, warnings = try_verifiers(examples)
    assert errors == []
    assert warnings["own: the verifier does not take the reference for right"] == ["0 (KeyError: 'valeu')"]


@pytest.mark.parametrize(
    ("judge", "warnings"),
    [
        (
            lambda example, reply: Verdict(True, reply, "ok", ""),
            ["own: the verifier takes garbage for right"],
        ),
        (
            lambda example, reply: Verdict(False, reply, "ok", ""),
            ["own: the verifier does not take the reference for right"],
        ),
    ],
)
def test_one_that_takes_the_wrong_things_is_warned_about(examples, judge, warnings):
    register(judge)
    assert [*try_verifiers(examples)[1]] == warnings


def test_where_a_machine_cannot_judge_it_says_so(examples):
    def require():
        raise UserError("no sandbox here")

    register(failing, require=require)
    assert try_verifiers(examples) == ([], {"own: the verifier was not tried": ["no sandbox here"]})


@pytest.mark.parametrize("name", ["pocket:train:20", "pocket:eval:20"])
def test_the_built_in_verifiers_pass(name):
    assert try_verifiers(load_examples(name)) == ([], {})

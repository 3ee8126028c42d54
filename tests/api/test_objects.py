"""Verifiers and methods as files: judged in worker processes, or in this one where there is no text."""

import logging
import os
from dataclasses import replace

import pytest
from support.runs import complaint

from smopd.api.objects import judges_of, method_file
from smopd.data import Example
from smopd.methods import METHODS, Method
from smopd.verify import custom, load_verifiers, verify

ONE = Example("1", "given", "", ("a", "b"), "ab", {"value": 3})


def as_number(answer, reply):
    return int(reply) == answer


@custom.verifier("second")
def second(answer, reply):
    return True


def here_or_not(answer, reply):
    return str(os.getpid()) == reply if reply else None


@custom.verifier("ranked", answer=("rank",), timeout=9.0)
def ranked(answer, reply):
    return reply == str(answer["rank"])


class Strict:
    """A verifier with a state."""

    def __init__(self):
        self.calls = 0

    def plan(self, settings):
        return METHODS["entropy"].plan(settings)

    def judge(self, answer, reply):
        self.calls += 1
        if reply == "boom":
            raise ValueError("too loud")
        return reply == str(answer)


def loaded(judges, folder):
    file = folder / "verifier.py"
    file.write_text(judges.file.text)
    if judges.file.reason:
        custom.register_in_process(file, judges.functions, judges.fields)
    load_verifiers([file])
    return file


def test_a_function_is_judged_in_another_process(tmp_path):
    judges = judges_of(here_or_not, plain=False)
    assert (judges.task, judges.fields, judges.every) == ("here_or_not", (), True)
    loaded(judges, tmp_path)
    example = Example("1", "here_or_not", "", ("a",), "a", {"value": 3})
    assert verify(example, "12").status == "ok"
    assert not verify(example, str(os.getpid())).correct  # another process
    assert verify(example, "").status == "no_answer"


@pytest.mark.parametrize(
    ("verifier", "task", "reason"),
    [
        (as_number, "as_number", ""),
        (lambda answer, reply: int(reply) == answer, "given", "a lambda has no text of its own"),
    ],
)
def test_a_function_gets_the_plain_answer(tmp_path, verifier, task, reason):
    judges = judges_of(verifier, plain=True)
    assert (judges.task, judges.fields, judges.file.reason) == (task, ("value",), reason)
    loaded(judges, tmp_path)
    example = replace(ONE, task=task)
    assert [verify(example, reply).correct for reply in ("3", "4")] == [True, False]
    assert verify(example, "three").status == "error"


def test_a_marked_function_keeps_its_task_fields_and_limits(tmp_path):
    judges = judges_of(ranked, plain=False)
    assert (judges.task, judges.fields, judges.every) == ("ranked", ("rank",), False)
    assert "timeout=9.0" in judges.file.text
    loaded(judges, tmp_path)
    assert verify(Example("1", "ranked", "", ("a",), "a", {"rank": 2}), "2").correct
    both = judges_of([ranked, second], plain=False)
    assert (sorted(both.functions), both.task, both.file.reason) == (["ranked", "second"], "", "")


def test_an_object_without_text_is_called_here_and_says_so_elsewhere(tmp_path):
    strict = Strict()
    judges = judges_of(strict.judge, plain=True)
    assert judges.file.reason
    file = loaded(judges, tmp_path)
    example = Example("1", "judge", "", ("a",), "a", {"value": 3})
    assert [verify(example, reply).correct for reply in ("3", "4")] == [True, False]
    failed = verify(example, "boom")
    assert (failed.status, failed.detail.startswith("ValueError: too loud")) == ("error", True)
    assert strict.calls == 3
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(file.read_text())
    custom.unload_verifiers()
    message = complaint([elsewhere], call=load_verifiers)
    assert "the verifier of this run is a Python object" in message
    assert "pass it again as verifier=" in message


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        (3, "verifier: expected a function of (answer, reply) that returns True, False or None, found int"),
        ([ranked, len], "verifier: of several functions each needs its task"),
    ],
)
def test_what_is_no_verifier_is_refused(verifier, message):
    assert message in complaint(verifier, False, call=judges_of)


def test_a_method_object_is_a_file_that_declares_it():
    written = method_file(METHODS["entropy"])
    assert not written.reason
    names: dict = {}
    exec(written.text, names)
    (again,) = names["METHODS"]
    assert again == METHODS["entropy"]


def test_a_method_of_something_bound_has_no_file(caplog):
    base = METHODS["entropy"]
    method = Method("bound", "t", "s", "p", base.section, Strict().plan)
    with caplog.at_level(logging.WARNING, "smopd"):
        assert "an object of the class" in method_file(method).reason or method_file(method).reason

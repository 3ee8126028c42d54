"""Mistakes in a method file end in exit code 2 and a sentence that names file, line, term and part, before a
model is loaded wherever a dry run can show them.
"""

import re

import pytest
from methods.mistakes import LATER, MISTAKES, RIGHT, SEEN, SELECT

FILE = "my_method.py"
FEW = ["data.train=pocket:train:3", "train.rollouts=2", "train.micro_batch=2", "train.steps=2",
       "rollout.middle_tokens=4", "rollout.answer_tokens=4"]  # fmt: skip


class ModelLoaded(Exception):
    pass


@pytest.fixture
def train(smopd, tmp_path):
    """Trains with a method file of this text; the exit code and what was said."""

    def run(text: str, *options: str) -> tuple[int, str]:
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        sets = [word for setting in FEW for word in ("--set", setting)]
        code, _, err = smopd("train", "pocket", "--method", FILE, "--out", "run", *sets, *options)
        return code, err

    return run


@pytest.fixture
def no_model(monkeypatch):
    def load(*_):
        raise ModelLoaded

    monkeypatch.setattr("smopd.training.loop.load_model", load)


def with_mistake(old: str, new: str) -> str:
    assert RIGHT.count(old) == 1, old
    return RIGHT.replace(old, new)


def line_of(text: str, at: str) -> int:
    return text[: text.index(at)].count("\n") + 1


def told(err: str) -> str:
    """What stands behind the progress of loading."""
    return err[err.index("error: ") :]


def assert_told(code: int, err: str, place: str, says: str) -> None:
    """One sentence and, at most, the lines of the user's own file that led there."""
    assert code == 2, err
    assert "Traceback" not in err
    first, *frames = told(err).strip().split("\n")
    assert place in first, err
    assert says in first, err
    assert all(re.match(rf"  {FILE}:\d+, in \S+: ", frame) for frame in frames), err


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_before_a_model_is_loaded(name, train, no_model):
    old, new, at, says = MISTAKES[name]
    text = with_mistake(old, new)
    code, err = train(text)
    assert_told(code, err, f"{FILE}:{line_of(text, at)}" if at else FILE, says)


def test_there_are_many():
    assert len({(old, new) for old, new, _, _ in MISTAKES.values()}) == len(MISTAKES) >= 112


def test_the_right_file_is_not_refused(train, no_model):
    with pytest.raises(ModelLoaded):
        train(RIGHT)


def test_a_method_that_the_file_does_not_have(smopd, tmp_path):
    (tmp_path / FILE).write_text(RIGHT, encoding="utf-8")
    code, _, err = smopd("train", "pocket", "--method", f"{FILE}:mien")
    assert_told(code, err, FILE, "has no method 'mien'; did you mean 'mine'? The methods are mine")


@pytest.mark.parametrize("name", ["tokens without return", "plan without return", "teacher as a text"])
def test_a_dry_run_tells_the_same(name, train, no_model):
    old, new, at, says = MISTAKES[name]
    text = with_mistake(old, new)
    code, err = train(text, "--dry-run")
    assert_told(code, err, f"{FILE}:{line_of(text, at)}", says)


def test_a_dry_run_shows_parts_the_examples_of_the_run(train, no_model, tmp_path):
    """A context may need a field that only the run's own examples have."""
    needs = with_mistake(SEEN, "    assert not reply.example.id.startswith('toy')\n" + SEEN)
    with pytest.raises(ModelLoaded):
        train(needs)
    assert train(needs, "--dry-run")[0] == 0


def test_the_own_frames_of_an_exception_are_told(train, no_model):
    helper = "    return helped(messages)\n\n\ndef helped(messages):\n    return [(1 / 0, messages)]\n"
    text = with_mistake(SEEN, helper)
    _, err = train(text)
    first, second = line_of(text, "return helped"), line_of(text, "1 / 0")
    assert told(err).split("\n") == [
        f"error: {FILE}:{second}, term 'middle', teacher `seen`: ZeroDivisionError: division by zero",
        f"  {FILE}:{first}, in seen: return helped(messages)",
        f"  {FILE}:{second}, in helped: return [(1 / 0, messages)]",
        "",
    ]


def test_of_a_recursion_the_ends_are_told(train, no_model):
    code, err = train(with_mistake(SELECT, "    return selected(tokens)\n"))
    assert code == 2
    assert "tokens `selected`: RecursionError: maximum recursion depth exceeded" in told(err)
    assert "  ... " in told(err)
    assert len(told(err).strip().split("\n")) == 6


@pytest.mark.parametrize("part", LATER)
def test_what_only_training_shows_is_told_the_same_way(part, train):
    old, new, at, says = LATER[part]
    text = with_mistake(old, new)
    code, err = train(text)
    assert_told(code, err, f"{FILE}:{line_of(text, at)}", says)

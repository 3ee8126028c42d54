"""Replies in many styles, right ones and near misses, kept as data; and those of real models."""

import pytest
from conftest import shared
from verdicts import STYLES, real_actions, real_math, styles

from smopd.verify import sandbox

LEAST = {"math": 40, "code": 40, "actions": 30, "database": 40}  # styles


@pytest.mark.parametrize("task", LEAST)
def test_right_replies_are_accepted_and_wrong_ones_are_not(task: str) -> None:
    if task == "code" and sandbox.isolation() == "none":
        pytest.skip("neither bubblewrap nor namespaces work on this machine")
    measured = styles(task)
    assert measured.accepted_wrong == 0, measured.misjudged
    assert measured.share >= 0.97, measured.misjudged
    assert len(measured.styles) >= LEAST[task]
    assert min(measured.right, measured.wrong) >= 90


def test_every_file_of_styles_is_measured() -> None:
    assert {file.stem for file in STYLES.glob("*.json")} == set(LEAST)


def test_calls_of_real_models() -> None:
    measured = real_actions(shared("data/replies/actions.jsonl"))
    assert measured.accepted_wrong == 0, measured.misjudged
    assert measured.share >= 0.94
    assert measured.right + measured.wrong >= 400


def test_closing_sentences_of_real_models_are_read_and_no_other_verdict_changes() -> None:
    accepted, total, changed = real_math(shared("data/replies/math.jsonl"))
    assert (total, changed) == (110, [])
    assert accepted >= 0.85 * total  # the others give another number

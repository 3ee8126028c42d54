"""Settings of methods in studies: terms switched off as arms, and axes over what only one method has."""

import pytest

from smopd.errors import UserError
from smopd.study.plan import load_study

STUDY = """
name = "turns"
recipe = "pocket"
seeds = [1]
[[arms]]
name = "whole"
method = "entropy"
[[arms]]
name = "middle-off"
method = "entropy"
set = {"objective.middle" = 0}
[[arms]]
name = "answer-off"
method = "entropy"
set = {"objective.answer" = 0}
"""
OWN = """
from smopd.methods import Method, smopd

class Settings(smopd.Settings):
    sure: float = 0.5

METHODS = [Method("mine", "mine", "mine", "mine", Settings, smopd.plan)]
"""


def test_turns_that_are_switched_off_are_ordinary_arms(tmp_path):
    (tmp_path / "turns.toml").write_text(STUDY)
    cells = load_study(tmp_path / "turns.toml").cells
    assert [(c.arm, c.config.objective.middle, c.config.objective.answer) for c in cells] == [
        ("whole", 1.0, 1.0), ("middle-off", 0.0, 1.0), ("answer-off", 1.0, 0.0),
    ]  # fmt: skip
    assert len({c.key for c in cells}) == 3


def test_an_axis_over_a_setting_that_only_the_users_method_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    axes = '[axes]\n"objective.sure" = [0.2, 0.4]\n'
    text = 'recipe = "pocket"\n[[arms]]\nname = "mine"\nmethod = "mine.py"\n'
    (tmp_path / "sure.toml").write_text(text + axes)
    cells = load_study(tmp_path / "sure.toml").cells
    assert [c.config.objective.sure for c in cells] == [0.2, 0.4]
    (tmp_path / "both.toml").write_text(f'{text}[[arms]]\nname = "theirs"\nmethod = "entropy"\n{axes}')
    with pytest.raises(UserError, match=r"both.toml: pocket, theirs: --set: unknown key 'objective.sure'"):
        load_study(tmp_path / "both.toml")
    (tmp_path / "wrong.toml").write_text(text + '[axes]\n"objective.sure" = ["high"]\n')
    with pytest.raises(UserError, match=r"wrong.toml: \[axes\]: objective.sure = \"high\": expected a"):
        load_study(tmp_path / "wrong.toml")


def test_the_text_of_a_method_is_part_of_a_cells_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.toml").write_text('recipe = "pocket"\n[[arms]]\nname = "mine"\nmethod = "mine.py"\n')
    keys = []
    for text in (OWN, OWN + "\n# another text\n"):
        (tmp_path / "mine.py").write_text(text)
        keys.append(load_study(tmp_path / "one.toml").cells[0].key)
    assert keys[0] != keys[1]

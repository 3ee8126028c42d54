"""docs/extending.md: each example, as it stands there, is one file of the user's and does what it says."""

import json
import re
import shlex
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def lay_out(section: str, folder: Path) -> list[list[str]]:
    """Write a section's files; its commands."""
    for name, text in re.findall(r"^`([\w.]+)`\n\n```\w+\n(.*?)^```", SECTIONS[section], re.M | re.S):
        (folder / name).write_text(text, encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", SECTIONS[section], re.M | re.S)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def run(tmp_path, monkeypatch, smopd):
    monkeypatch.chdir(tmp_path)

    def of(section: str) -> Path:
        (command,) = lay_out(section, tmp_path)
        code, _, err = smopd(*command[1:])
        assert code == 0, err
        return tmp_path / command[command.index("--out") + 1]

    return of


def test_every_section_is_run_here():
    assert list(SECTIONS) == [
        "A divergence", "A selector", "A teacher context", "A group method", "A verifier", "An engine",
    ]  # fmt: skip


def test_a_divergence(run):
    for row in rows(run("A divergence")):
        assert 0 < row["divergence/middle"] < 1  # total variation is at most 1
        assert row["grad_norm"] > 0


def test_a_selector(run):
    folder = run("A selector")
    assert all(0 < row["kept"] < 1 for row in rows(folder))
    assert "sure = 0.3" in (folder / "config.toml").read_text()


def test_the_settings_of_a_file_are_strict(tmp_path, monkeypatch, smopd):
    monkeypatch.chdir(tmp_path)
    (command,) = lay_out("A selector", tmp_path)
    code, _, err = smopd(*command[1:], "--set", "objective.shure=1")
    assert (code, err) == (2, "error: --set: unknown key 'objective.shure'; did you mean 'objective.sure'?\n")
    code, _, err = smopd(*command[1:], "--set", "objective.sure=-1")
    assert (code, err) == (2, "error: --set: objective.sure = -1: expected a finite number greater than 0\n")
    (tmp_path / "my_selector.py").write_text("METHODS = [1 / 0]\n")
    code, _, err = smopd(*command[1:])
    assert code == 2
    assert "my_selector.py:1: ZeroDivisionError: division by zero" in err
    assert "Traceback" not in err


def test_a_run_insists_on_the_text_of_its_file(run, smopd, tmp_path):
    folder = run("A selector")
    assert list(folder.glob("checkpoints/*"))
    (command,) = lay_out("A selector", tmp_path)
    path = tmp_path / "my_selector.py"
    path.write_text(path.read_text().replace("<= settings.sure", "> settings.sure"))
    code, _, err = smopd(*command[1:])
    assert code == 2
    assert "belongs to a run of other settings" in err


def test_a_teacher_context(run):
    for row in rows(run("A teacher context")):
        assert row["loss/pushed"] == row["loss"] > 0


def test_a_group_method(run):
    for row in rows(run("A group method")):
        assert row["verdict/ok"] + row["verdict/no_answer"] == 16  # four examples, four samples each
        assert "loss/policy" in row


def test_a_verifier(run):
    summary = json.loads((run("A verifier") / "summary.json").read_text())
    assert {view: v["total"] for view, v in summary["views"].items()} == {"full": 2, "sharded": 2}


def test_an_engine(run):
    (row,) = rows(run("An engine"))
    assert row["rollout/logp_gap"] < 1e-4

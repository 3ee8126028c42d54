"""docs/your-own-tasks.md works as it is written, and what the package ships is there (more: tests/docs)."""

import re
import shlex
from pathlib import Path

import pytest

from smopd.data import load_examples
from smopd.evaluation import verify

ROOT = Path(__file__).parents[1]


def test_shipped_files_are_small_and_there():
    shipped = [p for p in (ROOT / "smopd" / "pocket" / "model").iterdir() if p.is_file()]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in shipped}
    assert sum(p.stat().st_size for p in shipped) < 10_000_000


@pytest.mark.slow
def test_your_own_tasks_works_as_written(smopd, tmp_path):
    """The page's files and commands, in order."""
    page = (ROOT / "docs" / "your-own-tasks.md").read_text()
    names = {"json": "questions.jsonl", "python": "my_tasks.py", "toml": "clock.toml"}
    commands = []
    for language, text in re.findall(r"```(\w+)\n(.*?)```", page, flags=re.DOTALL):
        if language == "bash":
            commands += text.strip().split("\n")
        else:
            (tmp_path / names[language]).write_text(text)
    assert len(commands) == 8
    for command in commands:
        code, out, err = smopd(*shlex.split(command)[1:])
        assert code == 0, err
        if "data shard" in command:
            assert out.startswith("4 examples in clock.jsonl; 0 rows dropped")
        if "smopd eval" in command:
            assert "SHARDED: base" in out
        if "smopd report" in command:  # the road ends in a page with before and after
            assert "missing" not in out
            page = (tmp_path / "runs" / "clock" / "report.html").read_text()
            assert "FULL: base against trained" in page
            assert len(re.findall(r" before, \w+ after; expected", page)) == 3  # conversations
    examples = load_examples(tmp_path / "clock.jsonl")
    assert examples[0].shards[0] == "At what time has she rested?"
    assert [verify(e, f"So at {e.answer['value']}.").correct for e in examples] == [True] * 4
    assert verify(examples[0], "At 12:06.").correct is False
    assert verify(examples[0], "Soon.").status == "no_answer"
    assert "3 of 3 steps" in page

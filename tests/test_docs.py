"""The worked cases of docs/data.md work as written, and shipped files are there (more: tests/docs)."""

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


def section(title: str) -> str:
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", page, re.M | re.S)
    return text


def test_a_hugging_face_data_set_becomes_examples(smopd, tmp_path, monkeypatch):
    """The page's script and its `data` commands, with a few rows in place of the hub's."""
    from datasets import Dataset

    def load_dataset(name, config, split):
        assert (name, config) == ("openai/gsm8k", "main")
        n = {"train": 3, "test": 5}[split]
        question = f"Ann has {n} pens. She buys {n + 1} more pens in town. How many pens does she have now?"
        return Dataset.from_list([{"question": question, "answer": f"{n} + {n + 1}\n#### {2 * n + 1}"}])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    text = section("A Hugging Face data set")
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL))
    monkeypatch.chdir(tmp_path)
    exec(blocks["python"], {})
    commands = [line for line in blocks["sh"].splitlines() if line.startswith("smopd data")]
    assert len(commands) == 3
    for command in commands:
        code, _, err = smopd(*shlex.split(command)[1:])
        assert code == 0, err
    (example,) = load_examples(tmp_path / "train.jsonl")
    assert example.shards[0] == "How many pens does she have now?"
    assert len(example.shards) == 3
    assert verify(example, "She has 7 pens.").correct
    assert load_examples(tmp_path / "test.jsonl")[0].answer == {"value": "11"}


@pytest.mark.slow
def test_own_questions_work_as_written(smopd, tmp_path):
    """The section's files and commands, in order."""
    page = section("Your own questions, step by step")
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

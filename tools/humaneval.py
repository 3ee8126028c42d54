"""Writes HumanEval's tasks as examples of the task code, told at once, to see whether a model forgets.

    python tools/humaneval.py raw/HumanEval.jsonl.gz humaneval.jsonl
    smopd eval runs/x --data humaneval.jsonl --views full --set eval.limit=60 --out runs/x/eval/humaneval

A task is one message, so FULL is the only view that says something.
HumanEval: github.com/openai/human-eval, MIT.
"""

import gzip
import json
import sys
from pathlib import Path

from smopd.data import Example, save_examples
from smopd.verify.tasks.code import SYSTEM


def humaneval(path: Path) -> list[Example]:
    examples = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            answer = {name: row[name] for name in ("prompt", "test", "entry_point")}
            full = f"Complete this function:\n{row['prompt']}"
            examples.append(Example(row["task_id"], "code", SYSTEM, (full,), full, answer, "HumanEval"))
    return examples


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tools/humaneval.py HumanEval.jsonl.gz OUT.jsonl")
    save_examples(Path(sys.argv[2]), humaneval(Path(sys.argv[1])))

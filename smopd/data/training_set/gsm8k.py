"""GSM8K's training questions as items. The evaluation half is never read here."""

from collections import Counter
from pathlib import Path

from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_rows
from smopd.verify.tasks.math import SYSTEM

FILES = ("gsm8k_train.jsonl",)


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every question of gsm8k_train.jsonl; `gsm8k/train/17` is its line 18."""
    items = []
    for number, row in enumerate(read_rows(need(raw, "math", *FILES))):
        text, reply = normalise(row.text("question")), row.text("answer")
        if "####" not in reply:
            raise row.error("answer", "expected a text that ends in '#### <number>'")
        answer = {"value": reply.rsplit("####", 1)[1].strip()}
        items.append(Item(f"gsm8k/train/{number}", "math", SYSTEM, text, text, answer, FILES[0], reply))
    return items

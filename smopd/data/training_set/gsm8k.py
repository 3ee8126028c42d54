"""GSM8K's training questions as items. The evaluation half is never read here."""

from collections import Counter
from pathlib import Path

from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_lines, text_of
from smopd.errors import UserError
from smopd.verify.tasks.math import SYSTEM

FILES = ("gsm8k_train.jsonl",)


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every question of gsm8k_train.jsonl; `gsm8k/train/17` is its line 18."""
    items = []
    for number, (where, row) in enumerate(read_lines(need(raw, "math", *FILES), ("question", "answer"))):
        question, answer = text_of(row, "question", where), text_of(row, "answer", where)
        if "####" not in answer:
            raise UserError(f"{where}, field 'answer': expected a text that ends in '#### <number>'")
        value = {"value": answer.rsplit("####", 1)[1].strip()}
        text = normalise(question)
        items.append(Item(f"gsm8k/train/{number}", "math", SYSTEM, text, text, value, FILES[0], answer))
    return items

"""MBPP's tasks as items: the text with its asserts, which tell the function's name and signature, one a shard
at the end.
"""

from collections import Counter
from pathlib import Path

from smopd.data import lic
from smopd.data.sharding import LONGEST, normalise
from smopd.data.training_set.raw import Item, need, read_lines, text_of
from smopd.errors import UserError

FILES = ("mbpp.jsonl",)
_LEAD = "Your code should pass these tests:"


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every task of mbpp.jsonl; `mbpp/602` is the task with that number.

    As many asserts are shown as fit, in their order; all of them are the answer.
    """
    items = []
    for where, row in read_lines(need(raw, "code", *FILES), ("text", "code", "task_id", "test_list")):
        text, tests = normalise(text_of(row, "text", where)), row["test_list"]
        if (
            not isinstance(tests, list)
            or not tests
            or not all(isinstance(t, str) and t.strip() for t in tests)
        ):
            raise UserError(f"{where}, field 'test_list': expected a list of asserts")
        shown: list[str] = []
        for test in (t.strip() for t in tests):
            if shown and len("\n".join([text, _LEAD, *shown, test])) > LONGEST:
                break
            shown.append(test)
        full = "\n".join([text, _LEAD, *shown])
        extra = tuple(
            f"{'It should pass this test:' if not i else 'And this one:'} {test}"
            for i, test in enumerate(shown)
        )
        answer = {"test_list": tests, "test_setup_code": str(row.get("test_setup_code") or "")}
        code = text_of(row, "code", where).replace("\r\n", "\n")
        reply = f"```python\n{code}\n```"
        items.append(
            Item(f"mbpp/{row['task_id']}", "code", lic.CODE, text, full, answer, FILES[0], reply, extra)
        )
    return items

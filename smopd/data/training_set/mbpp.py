"""MBPP's tasks as items: the text, then its asserts, which tell the function's signature, one a shard."""

from collections import Counter
from pathlib import Path

from smopd.data.sharding import LONGEST, normalise
from smopd.data.training_set.raw import Item, need, read_rows
from smopd.verify.tasks.code import SYSTEM

FILES = ("mbpp.jsonl",)
_LEAD = "Your code should pass these tests:"


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every task of mbpp.jsonl; `mbpp/602` is the task with that number.

    As many asserts are shown as fit, in their order; all of them are the answer.
    """
    items = []
    for row in read_rows(need(raw, "code", *FILES)):
        text, tests = normalise(row.text("text")), row["test_list"]
        asserts = isinstance(tests, list) and all(isinstance(t, str) and t.strip() for t in tests)
        if not asserts or not tests:
            raise row.error("test_list", "expected a list of asserts")
        shown: list[str] = []
        for test in (t.strip() for t in tests):
            if shown and len("\n".join([text, _LEAD, *shown, test])) > LONGEST:
                break
            shown.append(test)
        full = "\n".join([text, _LEAD, *shown])
        leads = ["It should pass this test:", *["And this one:"] * len(shown)]
        extra = tuple(f"{lead} {test}" for lead, test in zip(leads, shown, strict=False))
        answer = {"test_list": tests, "test_setup_code": str(row.get("test_setup_code") or "")}
        code = row.text("code").replace("\r\n", "\n")
        reply, id = f"```python\n{code}\n```", f"mbpp/{row['task_id']}"
        items.append(Item(id, "code", SYSTEM, text, full, answer, FILES[0], reply, extra))
    return items
